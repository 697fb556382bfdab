"""Faults of software stacks, with the gate that catches each. No rehearsal plays them: tests bring them about in real builds."""

from typing import Final

from msgspec import Struct


class StackFault(Struct, frozen=True, kw_only=True):
    """A fault of a stack build: what is disturbed, the gate that catches it and the cause that the gate names."""

    name: str
    gate: str
    """The id (`STAGE/NAME`) of the gate that must not pass because of the fault."""
    summary: str
    """A sentence that says what is disturbed."""
    caught_by: str
    """A sentence that says what the gate sees of the fault."""
    cause: str
    """A regular expression that the reason of the verdict must match."""
    case: str
    """Name of the gate case in `tests/gates` with this fault, without `.json`."""
    test: str
    """The test that brings the fault about, as a file below `tests` and a function."""

    @property
    def stage(self) -> str:
        """The stage whose gate catches the fault."""
        return self.gate.partition("/")[0]


_BATCH: Final = "stack_build/batch"
_TREE: Final = "stack_tree/tree"
_TESTS: Final = "stack_test/tests"

FAULTS: Final = (
    StackFault(
        name="source_gone",
        gate=_BATCH,
        summary="A source archive is in no folder of sources, and its server does not have it any more.",
        caught_by="The fetch of the package fails in every attempt.",
        cause=r"failed in .*\(fetch\)",
        case="failed_fetch",
        test="stack/test_build_faults.py::test_a_source_that_is_gone_and_one_that_differs_are_told_apart",
    ),
    StackFault(
        name="source_differs",
        gate=_BATCH,
        summary="A source archive has another SHA-256 than the lock: its server replaced it, or somebody tampered with it.",
        caught_by="The archive is compared with the lock before anything is unpacked.",
        cause=r"\(checksum\)",
        case="failed_checksum",
        test="stack/test_build_faults.py::test_a_source_that_is_gone_and_one_that_differs_are_told_apart",
    ),
    StackFault(
        name="compile_error",
        gate=_BATCH,
        summary="A package does not compile.",
        caught_by="The build tool fails; its decisive lines and the command that repeats the build are in the verdict.",
        cause=r"\(compile\)",
        case="failed_compile",
        test="stack/test_build_faults.py::test_a_compile_error_stops_its_dependents_alone_and_is_reproduced",
    ),
    StackFault(
        name="cached_dependency_missing",
        gate=_BATCH,
        summary="A dependency was removed from the build cache after the plan was made.",
        caught_by="The build does not start without it, and names it.",
        cause=r"not in the cache",
        case="needs_missing",
        test="stack/test_package_builds.py::test_a_missing_dependency_stops_a_build_before_it_starts",
    ),
    StackFault(
        name="cache_entry_unsigned",
        gate=_BATCH,
        summary="An entry of the build cache has no signature by a key that the spec trusts.",
        caught_by="The dependency is refused before it is unpacked, and stays as it is.",
        cause=r"\(unsigned\)",
        case="failed_unsigned",
        test="stack/test_build_faults.py::test_a_damaged_and_an_unsigned_cache_entry_are_refused_and_stay",
    ),
    StackFault(
        name="cache_entry_tampered",
        gate=_BATCH,
        summary="An archive in the build cache has other bytes than its entry says.",
        caught_by="The archive is compared with its entry before it is unpacked, and is never silently built over.",
        cause=r"\(tampered\)",
        case="failed_tampered",
        test="stack/test_build_faults.py::test_a_damaged_and_an_unsigned_cache_entry_are_refused_and_stay",
    ),
    StackFault(
        name="cache_registry_down",
        gate=_BATCH,
        summary="The registry with the build cache does not answer.",
        caught_by="The build is tried again; if the registry stays away, the verdict names it.",
        cause=r"\(registry\)",
        case="failed_registry",
        test="stack/test_registry_cache.py::test_a_registry_that_is_away_fails_a_build_that_is_tried_again",
    ),
    StackFault(
        name="cache_registry_denied",
        gate=_BATCH,
        summary="The registry with the build cache does not permit the login of the builder to pull or push.",
        caught_by="The build stops at the registry's answer, which the verdict has, and is not tried again.",
        cause=r"\(permission\).* answered 40[13]",
        case="failed_registry_login",
        test="stack/test_registry_cache.py::test_a_registry_that_is_away_fails_a_build_that_is_tried_again",
    ),
    StackFault(
        name="build_disk_full",
        gate=_BATCH,
        summary="The disk on which packages are built or cached is full.",
        caught_by="The failed build is told apart from a compile error by the disk's own state and the tool's output.",
        cause=r"\(disk_full\)",
        case="failed_disk_full",
        test="stack/test_build_faults.py::test_a_full_disk_is_told",
    ),
    StackFault(
        name="build_lock_timeout",
        gate=_BATCH,
        summary="Another process holds the lock of the build tool's database for longer than the tool waits.",
        caught_by="The build is tried again; if the lock stays held, the verdict names it.",
        cause=r"\(lock_timeout\)",
        case="failed_lock_timeout",
        test="stack/test_package_builds.py::test_a_lock_that_stays_held_is_told_and_tried_again",
    ),
    StackFault(
        name="build_pod_evicted",
        gate=_BATCH,
        summary="The pod of a build is evicted or lost with its node.",
        caught_by="The build is tried again; a build that is lost in every attempt leaves no record, which the judge demands.",
        cause=r"",
        case="",
        test="unit/engines/argo/test_stack_graph.py::test_a_build_whose_pod_is_lost_is_built_again_and_no_other",
    ),
    StackFault(
        name="published_link_dangling",
        gate=_TREE,
        summary="A package has a symbolic link to a file that does not exist.",
        caught_by="Every link of the installed tree is followed.",
        cause=r"does not exist",
        case="dangling_link",
        test="stack/test_tree_faults.py::test_links_rpaths_and_addresses_that_lead_out_are_named_with_their_files",
    ),
    StackFault(
        name="rpath_wrong",
        gate=_TREE,
        summary="A program looks for its libraries in a folder outside the published packages.",
        caught_by="The dynamic section of every program and library is read.",
        cause=r"its rpath has",
        case="rpath",
        test="stack/test_tree_faults.py::test_links_rpaths_and_addresses_that_lead_out_are_named_with_their_files",
    ),
    StackFault(
        name="factory_address_published",
        gate=_TREE,
        summary="A published file names a host or a folder of the factory, which may be thrown away.",
        caught_by="All texts, links and programs of the tree are searched for the hosts and folders of the factory's spec.",
        cause=r"of the factory",
        case="factory_address",
        test="stack/test_tree_faults.py::test_links_rpaths_and_addresses_that_lead_out_are_named_with_their_files",
    ),
    StackFault(
        name="size_budget_exceeded",
        gate=_TREE,
        summary="The installed stack is larger than publish.largest_gib of the spec.",
        caught_by="The sizes of all files of the tree are summed up before anything is tested and published.",
        cause=r"expected at most .* \(publish\.largest_gib\)",
        case="over_budget",
        test="unit/steps/test_stack_tree_task.py::test_a_tree_above_the_size_budget_is_not_tested_and_published",
    ),
    StackFault(
        name="module_broken",
        gate=_TESTS,
        summary="A module file loads in the build alone.",
        caught_by="Lmod loads every module of the tree in an empty environment.",
        cause=r"loading module .* failed",
        case="module_broken",
        test="stack/test_tree_faults.py::test_a_module_that_loads_in_the_factory_alone_is_named",
    ),
    StackFault(
        name="reframe_test_fails",
        gate=_TESTS,
        summary="A program gives another answer than a ReFrame test of the site expects.",
        caught_by="ReFrame runs the tests of the spec in the installed tree; its report says which failed and in which phase.",
        cause=r"ReFrame test .* failed: sanity",
        case="reframe_sanity",
        test="stack/test_tree_faults.py::test_failing_tests_of_reframe_and_of_the_spec_are_named",
    ),
)
