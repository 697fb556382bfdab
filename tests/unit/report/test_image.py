"""The report of an image build: what is shown of files, layers, packages, tests and boots, also of a build that went wrong."""

from collections.abc import Iterator

import msgspec

from steps.contract.run_records import Header
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes, passed
from steps.nodeimage.contract.boot_tests import BootEvent, Firmware, MachineBoot, NodeReport
from steps.nodeimage.contract.image_manifest import ImageFile
from steps.nodeimage.contract.image_tests import ImageTestOutcome, ImageTestResult
from steps.nodeimage.product_report import details
from steps.report import html, junit, public_report
from steps.report import text as plain
from steps.report.assembly import build
from steps.report.model import Report
from steps.report.source import Record, StoredRun
from steps.stages.image_assemble.contract import Assembled
from steps.stages.image_boot.contract import Booted
from steps.stages.image_layers.contract import Built
from steps.stages.image_lock.contract import Archive
from steps.stages.image_publish.contract import Published
from steps.stages.image_sandbox.contract import Sandboxed
from steps.stages.image_status.contract import ImageStatus

ROOT = ImageFile(name="root.squashfs", digest="sha256:" + "a" * 64, size=123_400_000)
GOOD = ImageTestResult(name="mpi runs", outcome=ImageTestOutcome.PASS, seconds=0.41, output="2 ranks <ok>")
BAD = ImageTestResult(name="clock", outcome=ImageTestOutcome.FAIL, seconds=0.1, output="it is 1970")
REPORT = NodeReport(
    mac="52:54:00:00:00:01", address="10.0.2.15", kernel="6.1", root="overlay", clock=1.0, uptime=20.0, results=(GOOD,)
)
EVENTS = (BootEvent(at=5.0, what="script"), BootEvent(at=9.5, what="kernel"), BootEvent(at=61.0, what="report"))
CONSOLE = ("[    1.0] Linux version", "Unable to find a medium")


def records(boot: MachineBoot) -> Iterator[tuple[str, str, object]]:
    yield "image_lock", "archive", Archive(recipe="sha256:0", packages=140, fetched=3)
    yield "image_layers", "layer_base", Built(key="k" * 64, size=364_000_000, files=9000, seconds=33.5)
    yield "image_layers", "layer_hpc", Built(key="h" * 64, size=31_000_000, files=700, cached=True)
    yield "image_assemble", "outputs", Assembled(key="i" * 64, manifest="sha256:" + "b" * 64, found=(ROOT,), origin="3f2a <now>")
    yield "image_sandbox", "tests", Sandboxed(key="i" * 64, results=(GOOD, BAD))
    yield "image_boot", "boot_uefi", Booted(key="i" * 64, boots=(boot,))
    added, changed = ("htop=3.2",), ("gcc 12.1 → 12.2",)
    before = {"before": "0006-000000000000", "packages_added": added, "packages_changed": changed}
    yield "image_publish", "tree", Published(version="0007-bbbbbbbbbbbb", manifest="sha256:bbbbbbbbbbbb", **before)


def verdict_on(boot: MachineBoot, stage: str) -> Verdict:
    if stage != "image_boot":
        return passed(f"{stage}/x", "good")
    is_good = boot.report is not None and boot.report.root == "overlay"
    row = NodeVerdict(node=boot.name, status=Status.PASS if is_good else Status.FAIL, failure_class=FailureClass.RUNTIME)
    return of_nodes("image_boot/boots", [row], what="booted")


def evidence(boot: MachineBoot) -> list[Evidence]:
    return [
        Evidence(
            run="r1", stage=stage, task=task, verb="build", shard=0, attempt=1, input_digest="sha256:0", engine="local",
            started=10.0, finished=12.0, verdict=verdict_on(boot, stage), observation=msgspec.to_builtins(seen),
        )
        for stage, task, seen in records(boot)
    ]  # fmt: skip


def boot(**more: object) -> MachineBoot:
    made = MachineBoot(name="uefi-1", firmware=Firmware.UEFI, mac="52:54:00:00:00:01", seconds=61.0, ended="report", events=EVENTS)
    return msgspec.structs.replace(msgspec.structs.replace(made, report=REPORT, console=CONSOLE), **more)


def report(one: MachineBoot) -> Report:
    return reported(evidence(one))


def reported(records: list[Evidence]) -> Report:
    header = Header(run="r1", engine="local", plan="sha256:1", cluster="compute", owner="hpc", revision="1", target_uid="")
    kept = tuple(Record(f"k{number}", "sha256:0", made) for number, made in enumerate(records))
    return build(StoredRun(header=header, target_uid="", hosts=(), plan={"stages": []}, records=kept, quarantine=()))


def test_what_was_built_is_told_as_data() -> None:
    made = details(evidence(boot()))
    assert made is not None
    assert (made.version, made.before, made.packages, made.fetched) == ("0007-bbbbbbbbbbbb", "0006-000000000000", 140, 3)
    assert made.manifest == "sha256:bbbbbbbbbbbb", "that of the version beside it"
    assert [(layer.name, layer.cached, layer.seconds) for layer in made.layers] == [("base", False, 33.5), ("hpc", True, 2.0)]
    assert [(test.name, test.where, test.outcome) for test in made.tests] == [
        ("mpi runs", "sandbox", "pass"),
        ("clock", "sandbox", "fail"),
        ("mpi runs", "uefi-1", "pass"),
    ]


def test_a_test_that_took_over_a_second_in_the_sandbox_is_marked() -> None:
    """On an emulated machine a second says nothing."""
    slow = msgspec.structs.replace(GOOD, seconds=1.04)
    booted = evidence(boot(report=msgspec.structs.replace(REPORT, results=(slow,))))
    tested = [
        msgspec.structs.replace(one, observation=msgspec.to_builtins(Sandboxed(key="i" * 64, results=(slow, BAD))))
        if one.stage == "image_sandbox"
        else one
        for one in booted
    ]
    made = details(tested)
    assert made is not None
    assert [(test.where, test.over) for test in made.tests] == [("sandbox", "over 1 s"), ("sandbox", ""), ("uefi-1", "")]
    assert html.html(reported(tested)).count("1.04 s, over 1 s<") == 1


def test_a_console_is_shown_of_a_boot_that_went_wrong_alone() -> None:
    gone = boot(report=None, ended="deadline", stopped_at="no medium")
    elsewhere = boot(report=msgspec.structs.replace(REPORT, root="squashfs"))
    for one, wanted in ((boot(), ()), (gone, CONSOLE), (elsewhere, CONSOLE)):
        made = details(evidence(one))
        assert made is not None
        assert made.machines[0].console == wanted


def test_the_page_has_it_escaped_and_on_its_own() -> None:
    page = html.html(report(boot(report=None, ended="deadline", stopped_at="no medium")))
    for text in (
        "0007-bbbbbbbbbbbb",
        "123.4 MB",
        "gcc 12.1 → 12.2",
        "cached",
        "2 ranks &lt;ok&gt;",
        "Unable to find a medium",
        "no medium",
        "3f2a &lt;now&gt;",
    ):
        assert text in page, text
    assert "<ok>" not in page
    assert "Nodes × gates" not in page, "no fleet is judged"


def test_other_runs_have_no_such_part_and_outsiders_see_none() -> None:
    assert details([]) is None
    assert public_report.public(report(boot())).product is None


def test_an_observation_that_cannot_be_read_shows_nothing() -> None:
    broken = [msgspec.structs.replace(one, observation={"key": 7}) for one in evidence(boot())]
    made = details(broken)
    assert made is not None
    assert (made.layers, made.tests, made.machines, made.files) == ((), (), (), ())


def asked(answer: str, **more: object) -> Report:
    """A run that asked the published tree first, and whose other stages left no record."""
    seen = ImageStatus(key="i" * 64, where="/srv/images", answer=answer, version="0007-bbbbbbbbbbbb", **more)  # type: ignore[arg-type]
    header = Header(run="r1", engine="local", plan="sha256:1", cluster="compute", owner="hpc", revision="1", target_uid="")
    kept = [
        Evidence(
            run="r1", stage="image_status", task=task, verb="publish", shard=0, attempt=1, input_digest="sha256:0",
            engine="local", started=10.0, finished=12.0, verdict=passed("image_status/tree", "good"), observation=told,
        )
        for task, told in (("tree", msgspec.to_builtins(seen)), ("judge", None))
    ]  # fmt: skip
    plan = {"stages": [{"id": name, "gates": []} for name in ("image_status", "image_lock", "image_publish")]}
    records = tuple(Record(f"k{number}", "sha256:0", one) for number, one in enumerate(kept))
    return build(StoredRun(header=header, target_uid="", hosts=(), plan=plan, records=records, quarantine=()))


def test_a_run_that_had_nothing_to_do_passed_and_says_so() -> None:
    made, sentence = asked("current"), "nothing changed: version 0007-bbbbbbbbbbbb is this image"
    assert (made.status, made.sentence) == ("pass", sentence)
    assert [(stage.status, stage.reason) for stage in made.stages[1:]] == [("skipped", sentence)] * 2
    assert plain.text(made).rstrip().endswith(sentence)
    assert b"<failure" not in junit.junit(made)
    assert "nothing was written" in html.html(made)


def test_a_run_that_had_something_to_do_did_not() -> None:
    made = asked("changed", differs="another image")
    assert (made.status, [stage.status for stage in made.stages]) == ("not run", ["pass", "not run", "not run"])
