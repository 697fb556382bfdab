"""CPU targets: the table is archspec's, and decides which CPU runs the code of which target."""

import archspec.cpu
import pytest
from msgspec.structs import replace

from steps.softwarestack.builds import builder_cpu
from steps.softwarestack.contract import cpu_targets, stack_input
from steps.softwarestack.contract.cpu_targets import CpuFacts
from steps.softwarestack.contract.stack_input import StackInputError
from tests.unit.softwarestack import small_trees

V3 = cpu_targets.features("x86_64_v3")
CPUINFO = (
    "processor\t: 0\nmodel name\t: Processor\nflags\t\t: pni ssse3 avx2\nvmx flags\t: vnmi\n\nprocessor\t: 1\nflags\t\t: none\n"
)


def _other(name: str) -> bool:
    """Return True for targets that stacks cannot name, and for those of Apple's machines."""
    return "." in name or name in {"m1", "m2", "m3", "m4"}


def test_the_table_is_that_of_archspec() -> None:
    theirs = {
        name: (frozenset(target.features), target.family.name)
        for name, target in archspec.cpu.TARGETS.items()
        if target.family.name in ("x86_64", "aarch64") and not _other(name)
    }
    ours = {name: (cpu_targets.features(name), cpu_targets.architecture(name)) for name in theirs}
    assert ours == theirs
    assert all(cpu_targets.is_known(name) for name in theirs)


def test_this_machine_runs_the_targets_that_archspec_says() -> None:
    cpu, host = builder_cpu.read(), archspec.cpu.host()
    by_vendor = {name for name, target in archspec.cpu.TARGETS.items() if target <= host and not _other(name)}
    assert by_vendor
    assert {name: cpu_targets.missing_features(name, cpu) for name in by_vendor} == dict.fromkeys(by_vendor, "")


@pytest.mark.parametrize(
    ("target", "cpu", "missing"),
    [
        ("x86_64_v3", CpuFacts(architecture="x86_64", features=V3), ""),
        ("x86_64", CpuFacts(architecture="x86_64"), ""),
        ("haswell", CpuFacts(architecture="x86_64", features=V3), "aes pclmulqdq rdrand"),
        ("x86_64_v4", CpuFacts(architecture="x86_64", features=V3), "avx512bw avx512cd avx512dq avx512f avx512vl"),
        ("x86_64_v4", CpuFacts(architecture="x86_64"), "abm avx avx2 avx512bw avx512cd avx512dq and 18 more"),
        ("aarch64", CpuFacts(architecture="x86_64", features=V3), "the architecture aarch64"),
        ("x86_64", CpuFacts(), "the architecture x86_64"),
        ("power9le", CpuFacts(architecture="x86_64"), ""),
    ],
)
def test_a_cpu_that_cannot_run_a_target_is_told_by_its_features(target: str, cpu: CpuFacts, missing: str) -> None:
    assert cpu_targets.missing_features(target, cpu) == missing


def test_the_first_processor_counts() -> None:
    assert cpu_targets.read_cpu(CPUINFO) == CpuFacts(architecture="x86_64", features=frozenset({"pni", "sse3", "ssse3", "avx2"}))
    assert cpu_targets.read_cpu("Features\t: fp asimd\n").architecture == "aarch64"
    assert cpu_targets.read_cpu("cpu : POWER9\n") == CpuFacts()


@pytest.mark.parametrize(
    ("targets", "order"),
    [
        (("x86_64_v3", "x86_64_v4"), ("x86_64_v4", "x86_64_v3")),
        (("zen4", "x86_64", "icelake", "zen3"), ("zen4", "icelake", "zen3", "x86_64")),
        (("neoverse_v2", "neoverse_n2"), ("neoverse_n2", "neoverse_v2")),
    ],
)
def test_a_node_tries_the_most_demanding_target_first(targets: tuple[str, ...], order: tuple[str, ...]) -> None:
    assert cpu_targets.best_first(targets) == order


def test_a_task_for_several_targets_names_none_that_no_node_can_choose() -> None:
    stack = replace(small_trees.stack(), targets=("x86_64_v3", "power9le"))
    with pytest.raises(StackInputError, match="the features of CPU target 'power9le' are not known"):
        stack_input.decode(stack_input.encode(stack))
    assert stack_input.decode(stack_input.encode(replace(stack, targets=("x86_64_v3", "zen4")))).targets == ("x86_64_v3", "zen4")
