"""The report of a stack build: builds with failures and times, tests, what was published; also of a build that went wrong."""

import json

import msgspec

from steps.contract.run_records import Header
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from steps.report import html, public_report
from steps.report.assembly import build
from steps.report.model import Report
from steps.report.source import Record, StoredRun
from steps.softwarestack.contract.package_build import BuildFailure, BuildOutcome, PackageBuilt
from steps.softwarestack.contract.stack_release import PublishedStack
from steps.softwarestack.contract.stack_tests import StackTested, StackTestKind, StackTestOutcome, StackTestResult
from steps.softwarestack.contract.tree_check import InstalledPackage, TreeObservation
from steps.softwarestack.product_report import StackReport, details
from steps.stages.stack_build.contract import BatchBuilt

ZLIB = PackageBuilt(
    hash="a" * 32, title="zlib@1.3", outcome=BuildOutcome.BUILT, seconds=30.0, tool_seconds=27.0, overhead_seconds=3.0
)
LZ4 = PackageBuilt(
    hash="b" * 32, title="lz4@1.9", outcome=BuildOutcome.BUILT, seconds=50.0, tool_seconds=45.0, overhead_seconds=5.0
)
BAD = PackageBuilt(
    hash="c" * 32,
    title="hdf5@1.14",
    outcome=BuildOutcome.FAILED,
    failure=BuildFailure.COMPILE,
    phase="build",
    seconds=12.0,
    lines=("h5.c:7: error: expected <;>",),
    reproduce="bringup stack build --only hdf5",
    log="runs/r1/logs/stack_build/package/2/1",
)
LEFT = PackageBuilt(hash="d" * 32, title="netcdf@4.9", outcome=BuildOutcome.NOT_STARTED, needs="c" * 32)
GOOD = StackTestResult(name="zlib/1.3", kind=StackTestKind.LOAD, outcome=StackTestOutcome.PASS, seconds=0.2)
FIGURE = StackTestResult(name="triad", kind=StackTestKind.COMMAND, outcome=StackTestOutcome.PASS, seconds=0.5, value=151.25)
WRONG = StackTestResult(
    name="hello",
    kind=StackTestKind.COMMAND,
    outcome=StackTestOutcome.FAIL,
    seconds=1.5,
    output="2 ranks <ok>",
    incident="One <ok> was wrong.",
)
PACKAGES = tuple(InstalledPackage(hash=letter * 32, folder="x", module="x", archive="x") for letter in "abe")
TREE = TreeObservation(stack="s", key="sha256:k", digest="sha256:t", packages=PACKAGES, files=40, size=98_300_000)
PUBLISHED = PublishedStack(
    version="0007-bbbbbbbbbbbb",
    before="0006-aaaaaaaaaaaa",
    packages=3,
    copied=2,
    packages_changed=("zlib 1.2 → 1.3",),
    removed=("0003-cccccccccccc",),
    signature="good",
)


def record(stage: str, task: str, seen: object, shard: int, verdict: Verdict) -> Evidence:
    return Evidence(
        run="r1", stage=stage, task=task, verb="build", shard=shard, attempt=1, input_digest="sha256:0", engine="local",
        started=10.0 + shard, finished=60.0 + shard, verdict=verdict, observation=msgspec.to_builtins(seen),
    )  # fmt: skip


def good_run() -> list[Evidence]:
    good = passed("stack/x", "good")
    return [
        record("stack_build", "package", BatchBuilt(stack="s", batch=0, packages=(ZLIB,)), 0, good),
        record("stack_build", "package", BatchBuilt(stack="s", batch=1, packages=(LZ4,)), 1, good),
        record("stack_tree", "tree", TREE, 0, good),
        record("stack_test", "test", StackTested(stack="s", tree="sha256:t", results=(GOOD,)), 0, good),
        record("stack_publish", "version", PUBLISHED, 0, good),
    ]


def failed_run() -> list[Evidence]:
    bad = failed(
        "stack_build/batch", FailureClass.RUNTIME, seen="hdf5@1.14: compile", expected="built packages", next_step="see it"
    )
    return [
        record("stack_build", "package", BatchBuilt(stack="s", batch=0, packages=(ZLIB,)), 0, passed("stack_build/batch", "good")),
        record("stack_build", "package", BatchBuilt(stack="s", batch=1, packages=(BAD,)), 1, bad),
        record("stack_build", "package", BatchBuilt(stack="s", batch=2, packages=(LEFT,)), 2, bad),
        record("stack_test", "test", StackTested(stack="s", results=(WRONG, GOOD, FIGURE)), 0, bad),
    ]


def reported(records: list[Evidence]) -> Report:
    header = Header(run="r1", engine="local", plan="sha256:1", cluster="tools", owner="hpc", revision="1", target_uid="")
    kept = tuple(Record(f"k{number}", "sha256:0", made) for number, made in enumerate(records))
    return build(StoredRun(header=header, target_uid="", hosts=(), plan={"stages": []}, records=kept, quarantine=()))


def made(records: list[Evidence]) -> StackReport:
    report = details(records)
    assert report is not None
    return report


def test_what_was_built_and_published_is_told_as_data() -> None:
    report = made(good_run())
    assert (report.packages, len(report.built), report.cached) == (3, 2, 1)
    assert (report.version, report.before, report.copied) == ("0007-bbbbbbbbbbbb", "0006-aaaaaaaaaaaa", 2)
    assert report.times is not None
    assert (report.times.elapsed, report.times.serial, report.times.overhead) == (51.0, 80.0, 8.0)
    assert round(report.times.gain, 2) == 1.57
    assert round(report.times.overhead_share, 2) == 0.1


def test_tests_that_the_cpu_does_not_run_are_counted_for_the_headline() -> None:
    why = "the CPU of this machine lacks clzero, which zen4 needs"
    left = StackTestResult(
        name="hello for zen4", kind=StackTestKind.COMMAND, outcome=StackTestOutcome.NOT_TESTED, output=why, target="zen4"
    )
    tested = StackTested(stack="s", tree="sha256:t", results=(GOOD, left, left), lacking={"zen4": "clzero"})
    report = reported([record("stack_test", "test", tested, 0, passed("stack_test/tests", "good"))])
    assert [(part.stage, part.test, part.reason) for part in report.untested] == [("stack_test", "2 tests of zen4", why)]
    assert reported(good_run()).untested == ()


def test_a_failed_build_has_its_class_lines_and_what_it_stopped() -> None:
    (row,) = made(failed_run()).failed
    assert (row.failure, row.phase, row.stopped) == ("compile", "build", ("netcdf@4.9",))
    assert row.reproduce == "bringup stack build --only hdf5"
    assert next(other for other in made(failed_run()).builds if other.title == "netcdf@4.9").needs == "hdf5@1.14"


def test_the_section_of_a_stack_has_its_own_name_in_json() -> None:
    data = json.loads(msgspec.json.encode(reported(good_run())))
    assert data["stack"]["version"] == "0007-bbbbbbbbbbbb"
    assert data["image"] is None


def test_the_page_has_it_escaped() -> None:
    page = html.html(reported(good_run()))
    for text in ("0007-bbbbbbbbbbbb", "1.6 times faster", "10 % of that", "zlib 1.2 → 1.3", "98.3 MB", "removed 0003-cccccccccccc"):
        assert text in page, text
    page = html.html(reported(failed_run()))
    for text in (
        "expected &lt;;&gt;",
        "bringup stack build --only hdf5",
        "not built because of it: netcdf@4.9",
        "needs hdf5@1.14",
        "2 ranks &lt;ok&gt;",
        "tested because: One &lt;ok&gt; was wrong.",
        "(figure 151.25)",
    ):
        assert text in page, text
    assert "<ok>" not in page


def test_other_runs_have_no_such_part_and_outsiders_see_none() -> None:
    assert details([]) is None
    assert public_report.public(reported(good_run())).stack is None


def test_an_observation_that_cannot_be_read_shows_nothing() -> None:
    broken = [msgspec.structs.replace(entry, observation={"stack": 7}) for entry in good_run()]
    report = made(broken)
    assert (report.builds, report.tests, report.version, report.times) == ((), (), "", None)
