"""The report says what the records say, in every form, and nothing passes that no record shows."""

import re
from xml.etree import ElementTree

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract.canonical import canonical
from steps.contract.run_records import Cancelled
from steps.contract.runs.evidence import Diagnosis
from steps.contract.runs.lost_attempts import LostAttempt
from steps.contract.runs.revision import SpecSource
from steps.contract.verdict import FailureClass, NodeVerdict, Status, failed, of_nodes
from steps.errors import BadTask
from steps.report import checklists, html, junit, model, public_report, source, text, timeline
from steps.report.assembly import build


def test_the_first_stage_that_did_not_pass_gives_status_and_sentence(stored: source.StoredRun) -> None:
    report = build(stored)
    assert [(stage.id, stage.status) for stage in report.stages] == [("os_prep", "pass"), ("gang", "fail"), ("slurm", "not run")]
    assert report.status == "fail"
    assert report.sentence == "gang: 3 of 17 pods bound on gpu002; expected none; next: check schedulerName"
    assert report.stages[1].failure_class == "runtime"
    assert (report.started, report.finished) == (100, 145)


def test_a_planned_stage_without_records_is_not_run(stored: source.StoredRun) -> None:
    empty = build(msgspec.structs.replace(stored, records=()))
    assert {stage.status for stage in empty.stages} == {"not run"}
    assert empty.status == "not run"


def test_nodes_by_gate_and_quarantine(stored: source.StoredRun) -> None:
    report = build(stored)
    rows = {node.name: node for node in report.nodes}
    assert rows["gpu001"].gates == {"os_prep/nodes": "pass"}
    assert rows["gpu003"].gates == {"os_prep/nodes": "fail"}
    assert rows["gpu003"].aside
    assert "timed out" in rows["gpu003"].reason
    assert report.stages[0].gates[0].passed == 3
    assert report.stages[0].gates[0].expected == 4


def test_html_is_one_file_without_scripts_or_references_and_escapes(stored: source.StoredRun) -> None:
    page = html.html(build(stored))
    assert "<script" not in page
    assert not re.search(r"""(src|href)\s*=|url\(|@import""", page)
    assert "timed out &lt;b&gt;" in page
    assert "timed out <b>" not in page
    for said in ("gpu003", "volcano", "1.15.1", "sha256:p", "ada", "rehearsal", "Look at"):
        assert said in page


def test_junit_counts_inconclusive_as_failure_and_missing_as_skipped(stored: source.StoredRun) -> None:
    suites = {suite.get("name"): suite for suite in ElementTree.fromstring(junit.junit(build(stored)))}
    assert suites["gang"].get("failures") == "2"
    assert suites["slurm"].get("skipped") == "2"
    assert [case.get("name") for case in suites["os_prep"]][:2] == ["os_prep/nodes", "os_prep/nodes sv1"]


def test_text_and_timeline(stored: source.StoredRun) -> None:
    report = build(stored)
    assert "quarantined gpu003 in os_prep" in text.text(report)
    entries = timeline.timeline(report)
    assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
    assert {entry.kind for entry in entries} == {"run", "task", "verdict", "change", "finding", "waiting", "approval"}
    assert "panic at" in timeline.note(report)


def test_the_public_report_names_no_host_address_path_or_place(stored: source.StoredRun) -> None:
    whole = msgspec.json.encode(public_report.public(build(stored))).decode()
    for secret in ("gpu00", "sv1", "10.77", "/etc/", "/opt/", "rack7", "ada@example.org", "charts.example.org", "volcano-system"):
        assert secret not in whole, secret
    assert "node 3" in whole


def test_an_error_that_the_reason_does_not_hold_is_told_once(stored: source.StoredRun) -> None:
    def with_error(error: str) -> str:
        records = [
            msgspec.structs.replace(one, evidence=msgspec.structs.replace(one.evidence, error=error))
            if one.evidence.task == "functional"
            else one
            for one in stored.records
        ]
        return build(msgspec.structs.replace(stored, records=tuple(records))).sentence

    assert with_error("the API server closed the connection").endswith("check schedulerName (the API server closed the connection)")
    assert with_error("3 of 17 pods bound on gpu002").endswith("check schedulerName")


def test_a_stage_that_ended_before_its_judge_tells_its_error(stored: source.StoredRun) -> None:
    begun = next(one for one in stored.records if one.evidence.task == "control")
    broken = msgspec.structs.replace(begun.evidence, verdict=None, error="exit 1: no route to host")
    report = build(msgspec.structs.replace(stored, records=(*stored.records[:2], msgspec.structs.replace(begun, evidence=broken))))
    assert report.status == "inconclusive"
    assert report.sentence == "gang: ended before its judge (exit 1: no route to host)"


def test_the_error_of_a_record_that_passed_is_not_the_cause(stored: source.StoredRun) -> None:
    records = [
        msgspec.structs.replace(one, evidence=msgspec.structs.replace(one.evidence, error="a warning"))
        if one.evidence.task == "control"
        else one
        for one in stored.records
    ]
    assert "a warning" not in build(msgspec.structs.replace(stored, records=tuple(records))).sentence


def test_while_a_run_goes_on_stages_to_come_have_not_started(stored: source.StoredRun) -> None:
    begun = msgspec.structs.replace(stored, records=stored.records[:1])
    assert [stage.reason for stage in build(begun, running=True).stages] == [
        "its judge has not spoken yet",
        "not started yet",
        "not started yet",
    ]
    assert [stage.reason for stage in build(begun).stages] == [
        "ended before its judge",
        "the run ended before it left a record",
        "the run ended before it left a record",
    ]
    assert build(stored).stages[2].reason == "gang did not pass"


def test_junit_gives_each_gate_its_own_reason(stored: source.StoredRun) -> None:
    rows = [NodeVerdict(node="gpu003", status=Status.FAIL, seen="7 of 8 GPUs", expected="8", next_step="look at dmesg")]
    judged = next(one for one in stored.records if one.evidence.task == "control")
    second = msgspec.structs.replace(judged.evidence, verdict=of_nodes("gang/control", rows, what="usable"))
    records = [one for one in stored.records if one is not judged]
    report = build(msgspec.structs.replace(stored, records=(*records, msgspec.structs.replace(judged, evidence=second))))
    node = report.nodes[3]
    assert set(node.reasons) == {"os_prep/nodes", "gang/control"}
    assert node.reason == f"os_prep/nodes: {node.reasons['os_prep/nodes']}"
    said = {case.get("name"): case for case in ElementTree.fromstring(junit.junit(report)).iter("testcase")}
    first, other = said["os_prep/nodes gpu003"].find("skipped"), said["gang/control gpu003"].find("failure")
    assert first is not None
    assert "set aside by quorum: gpu003: 10.77.0.3 timed out" in str(first.get("message"))
    assert other is not None
    assert other.get("message") == "gpu003: 7 of 8 GPUs; expected 8; next: look at dmesg"


def test_a_gate_that_a_quorum_passed_fails_nothing(stored: source.StoredRun) -> None:
    report = build(stored)
    gate = report.stages[0].gates[0]
    assert (gate.status, gate.quorum, gate.mark) == ("fail", True, "quorum")
    assert gate.counted == "1 of 1 servers, 2 of 3 agents"
    suite = next(suite for suite in ElementTree.fromstring(junit.junit(report)) if suite.get("name") == "os_prep")
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")
    told = next(case for case in suite if case.get("name") == "os_prep/nodes").findtext("system-out")
    assert told is not None
    assert told.startswith("passed by quorum: ")
    assert "nodes pass by quorum 3/4 (1 of 1 servers, 2 of 3 agents)" in text.text(report)
    assert '<span class="badge quorum" title="1 of 1 servers, 2 of 3 agents">nodes</span>' in html.html(report)
    assert not any(gate.quorum for gate in report.stages[1].gates)


def test_a_quarantined_node_is_named_once(stored: source.StoredRun) -> None:
    (line,) = [line for line in text.text(build(stored)).splitlines() if line.startswith("quarantined")]
    assert line == "quarantined gpu003 in os_prep: 10.77.0.3 timed out"


INTERRUPTED = model.Begun(stage="gang", task="control", started=120.0)


@pytest.mark.parametrize(
    ("begun", "cancelled", "status", "reason"),
    [
        ((INTERRUPTED,), False, "inconclusive", "interrupted while control ran"),
        ((INTERRUPTED,), True, "inconclusive", "cancelled by ada (Ctrl-C) while control ran"),
        ((msgspec.structs.replace(INTERRUPTED, finished=121.0),), False, "inconclusive", "control ended without a record"),
        (
            (model.Begun(stage="gang", task="approval", started=116.0),),
            False,
            "not run",
            "interrupted while it waited for an approval",
        ),
        ((), True, "not run", "cancelled by ada (Ctrl-C) before it left a record"),
        ((), False, "not run", "the run ended before it left a record"),
    ],
)
def test_what_was_cut_off_is_not_called_not_run(
    stored: source.StoredRun, begun: tuple[model.Begun, ...], cancelled: bool, status: str, reason: str
) -> None:
    who = Cancelled(who="ada", how="Ctrl-C", when=125.0) if cancelled else None
    cut = msgspec.structs.replace(stored, records=stored.records[:2], cancelled=who)
    report = build(cut, begun=begun)
    stage = report.stages[1]
    assert (stage.status, stage.reason, stage.judged) == (status, reason, False)
    assert report.sentence == f"gang: {reason}"
    if cancelled:
        assert (125.0, "cancelled by ada (Ctrl-C)") in {(entry.time, entry.text) for entry in timeline.timeline(report)}
        assert "ada" not in public_report.public(report).sentence


def test_a_task_that_kept_a_log_and_no_record_was_cut_off(stored: source.StoredRun) -> None:
    cut = msgspec.structs.replace(stored, records=stored.records[:2], logged=(("os_prep", "play"), ("gang", "control")))
    assert build(cut).stages[1].reason == "interrupted while control ran"


def test_an_approval_is_waited_for_then_answered_then_judged(stored: source.StoredRun) -> None:
    waits = model.Begun(stage="gang", task="approval", started=115.5, finished=116.0)
    for begun, asked, answered in (((), 115.0, 117.0), ((waits,), 115.5, 116.0)):
        entries = timeline.timeline(build(stored, begun=begun))
        told = [(entry.kind, entry.time) for entry in entries if entry.where in ("before gang", "gang/confirm")]
        assert told == [("waiting", asked), ("approval", answered), ("task", 117.0), ("verdict", 122.0)]
    open_ = msgspec.structs.replace(waits, stage="slurm", started=150.0, finished=0.0)
    report = build(stored, running=True, begun=(open_,))
    assert [(one.stage, one.asked, one.time) for one in report.approvals] == [("gang", 115.0, 117.0), ("slurm", 150.0, 0.0)]
    assert [entry.kind for entry in timeline.timeline(report)][-2:] == ["waiting", "run"]
    assert report.stages[2].reason == "waits for an approval"


def test_that_an_approval_was_announced_is_nothing_of_the_stage_that_waits(store: Store, stored: source.StoredRun) -> None:
    """An announcement changes neither status nor times of the stage that waits; a failed one is listed among the troubles."""
    waits = model.Begun(stage="slurm", task="approval", started=146.0)
    tells = model.Begun(stage="slurm", task="announce", started=146.0, finished=147.0)
    told = failed("slurm/announce", FailureClass.DEPENDENCY, seen="a 404", expected="a 2xx", next_step="tell them", final=True)
    record = msgspec.structs.replace(
        stored.records[-1].evidence, stage="slurm", task="announce", started=146.0, finished=150.0, verdict=told
    )
    store.write_evidence(record, canonical)
    announced = source.read(store, "r1")
    announced = msgspec.structs.replace(announced, logged=(("slurm", "announce"),))
    going = build(announced, running=True, begun=(waits, tells))
    assert (going.stages[2].status, going.stages[2].reason) == ("not run", "waits for an approval")
    assert [(one.stage, one.asked) for one in going.approvals if not one.time] == [("slurm", 146.0)]
    cut = build(announced, begun=(waits, msgspec.structs.replace(tells, finished=0.0)))
    assert (cut.stages[2].status, cut.stages[2].reason) == ("not run", "interrupted while it waited for an approval")
    assert (cut.stages[2].started, cut.stages[2].finished) == (0.0, 0.0)
    assert ("slurm", "announce", told.reason) in {(one.stage, one.task, one.reason) for one in cut.troubles}


def test_simulated_times_are_called_so_and_order_nothing(stored: source.StoredRun) -> None:
    failed = next(one for one in stored.records if one.evidence.task == "functional")
    found = Diagnosis(what="log", source="Pod a/b", content="1970-01-01T01:00:00Z late")
    late = msgspec.structs.replace(failed, evidence=msgspec.structs.replace(failed.evidence, diagnosis=(found,)))
    records = tuple(late if one is failed else one for one in stored.records)
    entries = timeline.timeline(build(msgspec.structs.replace(stored, records=records)))
    (entry,) = [entry for entry in entries if entry.kind == "finding" and "late" in entry.text]
    assert (entry.time, entry.where) == (135.0, "Pod a/b (its times are simulated)")


def test_the_git_commit_of_the_spec_is_told(stored: source.StoredRun) -> None:
    report = build(msgspec.structs.replace(stored, origin=SpecSource(commit="3f2a9c", path="sites/lab.yaml", dirty=True)))
    said = "Git 3f2a9c, sites/lab.yaml with changes that are not committed"
    for shown in (text.text(report), html.html(report), timeline.note(report)):
        assert said in shown
    assert public_report.public(report).source is None


def changing(stored: source.StoredRun, *attempts: dict[str, int]) -> model.Report:
    """The report with these attempts of the play of os_prep, each with what it changed by host."""
    first = stored.records[0]
    records = [
        msgspec.structs.replace(
            first,
            key=f"evidence/os_prep/play/0000/{number:02d}.json",
            evidence=msgspec.structs.replace(
                first.evidence,
                verb="play",
                attempt=number,
                observation={"nodes": [{"node": node, "changed": changed} for node, changed in attempt.items()]},
            ),
        )
        for number, attempt in enumerate(attempts, 1)
    ]
    return build(msgspec.structs.replace(stored, records=(*records, *stored.records[1:])))


def test_a_stage_with_plays_says_how_many_hosts_were_changed(stored: source.StoredRun) -> None:
    nothing = dict.fromkeys(("sv1", "gpu001", "gpu002"), 0)
    for attempts, said in (
        ((nothing,), "3 hosts: nothing changed"),
        ((nothing | {"gpu001": 4},), "1 of 3 hosts changed"),
        ((nothing | {"gpu001": 4}, nothing | {"sv1": 1}), "2 of 3 hosts changed"),
        (({"sv1": 1},), "1 of 1 host changed"),
    ):
        report = changing(stored, *attempts)
        (line,) = (line for line in text.text(report).splitlines() if line.startswith("os_prep "))
        assert line.endswith(f"; {said}")
        assert said in html.html(report)
        assert public_report.public(report).stages[0].hosts == said


def test_a_stage_without_a_play_or_its_record_says_nothing_of_hosts(stored: source.StoredRun) -> None:
    assert [stage.hosts for stage in build(stored).stages] == ["", "", ""]
    assert "changed" not in text.text(build(stored))
    assert changing(stored, {}).stages[0].hosts == ""


def test_the_timeline_folds_equal_changes_of_many_hosts(stored: source.StoredRun) -> None:
    changes = (*(f"{name}: 12 changes" for name in ("gpu001", "gpu002", "gpu003")), "sv1: 3 changes", "created run r1")
    first = msgspec.structs.replace(
        stored.records[0], evidence=msgspec.structs.replace(stored.records[0].evidence, changes=changes)
    )
    entries = timeline.timeline(build(msgspec.structs.replace(stored, records=(first, *stored.records[1:]))))
    told = [entry.text for entry in entries if entry.kind == "change"]
    assert told == ["gpu[001-003]: 12 changes", "sv1: 3 changes", "created run r1"]


def test_findings_have_their_own_times_and_those_of_earlier_attempts_are_told(stored: source.StoredRun) -> None:
    failed = next(one for one in stored.records if one.evidence.task == "functional")
    content = "before\n1970-01-01T00:02:11.123456789Z first\n  more\n1970-01-01T00:03:12+00:00 second\n9999-99-99T00:00:00Z third"
    found = Diagnosis(what="log", source="Pod a/b", content=content)
    early = msgspec.structs.replace(failed.evidence, diagnosis=(found,), finished=133.0)
    late = msgspec.structs.replace(failed.evidence, attempt=2, started=136.0, finished=139.0)
    others = [one for one in stored.records if one is not failed]
    both = (msgspec.structs.replace(failed, evidence=early), msgspec.structs.replace(failed, evidence=late))
    header = msgspec.structs.replace(stored.header, simulated=False)
    report = build(msgspec.structs.replace(stored, header=header, records=(*others, *both)))
    assert [(one.attempt, one.time) for one in report.overcome] == [(1, 133.0)]
    told = [(round(entry.time, 3), entry.text) for entry in timeline.timeline(report) if entry.kind == "finding"]
    assert told[0] == (131.123, "log: 1970-01-01T00:02:11.123456789Z first\n  more")
    assert told[1] == (133.0, "log: before")
    assert told[2][0] == 139.0
    assert "panic at" in told[2][1]
    assert told[3][0] == 192.0
    assert told[3][1].startswith("log: 1970-01-01T00:03:12+00:00 second\n9999")


def test_the_timeline_tells_git_revisions_whenever_they_change(stored: source.StoredRun) -> None:
    begun = next(one for one in stored.records if one.evidence.task == "control")

    def seen(attempt: int, planned: str, *synced: str) -> source.Record:
        app = {"version": "1.15.1", "revision": planned, "revisions": ["1.15.1", "3f2a9c"], "synced_revisions": list(synced)}
        observed = {"releases": [{"name": "volcano", "application": app}, {"name": "other", "chart": {}}]}
        one = msgspec.structs.replace(begun.evidence, attempt=attempt, finished=120.0 + attempt, observation=observed)
        return msgspec.structs.replace(begun, evidence=one)

    observed = (seen(1, "v1.4.0"), seen(2, "v1.4.0"), seen(3, "v1.4.0", "1.15.1", "3f2a9c"))
    report = build(msgspec.structs.replace(stored, records=(*stored.records, *observed)))
    told = [(entry.time, entry.where, entry.text) for entry in timeline.timeline(report) if entry.kind == "revision"]
    where, planned = "gang/control, release volcano", "planned chart 1.15.1, values v1.4.0; compared with 1.15.1, 3f2a9c; "
    assert told == [(121.0, where, f"{planned}synced nothing"), (123.0, where, f"{planned}synced 1.15.1, 3f2a9c")]
    assert "3f2a9c" in timeline.note(report)
    assert public_report.public(report).revisions == ()


def test_a_link_to_a_checklist_is_shown_as_the_checklist_itself(stored: source.StoredRun) -> None:
    failed = next(one for one in stored.records if one.evidence.task == "functional")
    both = (*failed.evidence.diagnosis, checklists.link(FailureClass.RUNTIME))
    linked = msgspec.structs.replace(failed, evidence=msgspec.structs.replace(failed.evidence, diagnosis=both))
    others = [one for one in stored.records if one is not failed]
    (trouble,) = [one for one in build(msgspec.structs.replace(stored, records=(*others, linked))).troubles if one.stage == "gang"]
    assert trouble.found == failed.evidence.diagnosis
    assert trouble.inspect == checklists.every()[FailureClass.RUNTIME].inspect
    assert trouble.recover == checklists.every()[FailureClass.RUNTIME].recover


def test_every_failure_class_has_a_checklist() -> None:
    assert set(checklists.every()) == set(FailureClass)
    assert all(one.inspect and one.recover for one in checklists.every().values())


def test_a_run_that_is_not_there_is_a_usage_error(store: Store) -> None:
    with pytest.raises(BadTask, match="no run r2"):
        source.read(store, "r2")


def test_a_run_that_could_not_be_opened_says_why_everywhere(store: Store, stored: source.StoredRun) -> None:
    """No stage has a record then; CI servers count one failure."""
    why = failed("run/open", FailureClass.INPUT, seen="run nope <never> came", expected="an earlier run", next_step="name one")
    record = msgspec.structs.replace(stored.records[0].evidence, stage="run", task="open", verdict=why, error="run nope never came")
    kept = msgspec.structs.replace(stored.records[0], evidence=record)
    unopened = msgspec.structs.replace(stored, records=(kept,))
    report = build(unopened)
    said = "open: run nope <never> came; expected an earlier run; next: name one"
    assert (report.status, report.sentence) == ("fail", said)
    assert {(stage.status, stage.reason) for stage in report.stages} == {("not run", "open did not pass")}
    assert text.text(report).splitlines()[:2] == [f"lab: fail: {said}", "class of the failure: input"]
    assert "open: run nope &lt;never&gt; came" in html.html(report)
    assert public_report.public(report).opening is not None
    suites = {suite.get("name"): suite for suite in ElementTree.fromstring(junit.junit(report))}
    assert [(name, suite.get("failures")) for name, suite in suites.items()] == [
        ("run", "1"), ("os_prep", "0"), ("gang", "0"), ("slurm", "0"),
    ]  # fmt: skip
    (case,) = suites["run"]
    (failure,) = case
    assert (case.get("name"), case.get("classname")) == ("run/open", "run")
    assert failure.get("message") == said.removeprefix("open: ")
    again = msgspec.structs.replace(kept, evidence=msgspec.structs.replace(record, attempt=2, verdict=None))
    for opened in (build(unopened, running=True), build(msgspec.structs.replace(stored, records=(kept, again)))):
        assert (opened.opening, opened.status) == (None, "not run")


def test_a_run_that_was_not_even_created_says_why(store: Store, stored: source.StoredRun) -> None:
    why = failed("run/open", FailureClass.INPUT, seen="fleet belongs to plan a", expected="plan b", next_step="render again")
    record = msgspec.structs.replace(stored.records[0].evidence, run="r2", stage="run", task="open", verdict=why)
    store.write_evidence(record, canonical)
    with pytest.raises(BadTask, match="run r2 was not created: fleet belongs to plan a; expected plan b") as raised:
        source.read(store, "r2")
    assert raised.value.hint == "bringup logs run.open --run r2"


@pytest.mark.parametrize("content", [b"{half", b"\xff", b"[1]", b"[" * 100_000, b""])
def test_a_broken_record_is_named_without_a_traceback(store: Store, content: bytes) -> None:
    path = store.root / "runs/r1/evidence/gang/judge/0000/01.json"
    assert path.exists()
    path.write_bytes(content)
    with pytest.raises(BadTask, match=r"runs/r1/evidence/gang/judge/0000/01\.json is no record of a task"):
        source.read(store, "r1")


def test_the_timeline_lists_lost_attempts_at_their_time(stored: source.StoredRun) -> None:
    lost = LostAttempt(stage="drill", task="apply", shard=1, started=100.0, finished=104.0, message="The node was low on resource")
    entries = timeline.timeline(build(stored), [lost])
    entry = next(entry for entry in entries if entry.text.startswith("an attempt was lost"))
    assert (entry.time, entry.where) == (104.0, "drill/apply shard 1")
    assert entry.text == "an attempt was lost 4 s after its start: The node was low on resource"
    assert "an attempt was lost" in timeline.note(build(stored), [lost])


def test_the_headline_of_a_pass_names_the_tests_that_the_spec_rules_out(stored: source.StoredRun) -> None:
    reason = "NCCL cannot join MIG instances"
    parts = [{"stage": "os_prep", "test": name, "reason": reason} for name in ("NCCL inside nodes", "NCCL between nodes")]
    parts.append({"stage": "os_prep", "test": "DCGM diagnostics", "reason": "level 1 instead of 3: with MIG"})
    one_stage = {"stages": stored.plan["stages"][:1], "untested": parts}
    records = tuple(record for record in stored.records if record.evidence.stage == "os_prep")
    report = build(msgspec.structs.replace(stored, plan=one_stage, records=records))
    assert (report.status, report.sentence) == (
        "pass",
        f"0 of 1 stages proven; NCCL inside nodes and NCCL between nodes not run: {reason}; "
        "DCGM diagnostics at level 1 instead of 3: with MIG",
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("target.json", "[]"),
        ("target.json", '{"uid": 7}'),
        ("plan.json", "[]"),
        ("plan.json", '{"stages": 5}'),
        ("plan.json", '{"stages": [{"id": 7, "tasks": []}]}'),
        ("plan.json", '{"stages": [{"id": "os_prep", "tasks": ["play"]}]}'),
        ("plan.json", '{"releases": ["volcano"]}'),
        ("plan.json", '{"untested": {"a": 1}}'),
    ],
)
def test_a_file_of_a_wrong_form_is_named(store: Store, stored: source.StoredRun, name: str, content: str) -> None:
    assert stored.records
    store.replace(f"runs/r1/{name}", content.encode())
    with pytest.raises(BadTask, match="a file of run r1 is broken"):
        source.read(store, "r1")


def test_a_play_of_a_wrong_form_and_a_time_that_is_none_are_shown(stored: source.StoredRun) -> None:
    for rows in (7, [3], [{"node": 1}], {"gpu001": {}}):
        records = tuple(
            msgspec.structs.replace(
                record, evidence=msgspec.structs.replace(record.evidence, verb="play", observation={"nodes": rows})
            )
            for record in stored.records
        )
        assert build(msgspec.structs.replace(stored, records=records)).stages
    assert [timeline.stamp(seconds) for seconds in (0.0, 1e300, -5.0, float("inf"))] == [
        "1970-01-01 00:00:00Z",
        "1e+300 s",
        "-5 s",
        "inf s",
    ]
