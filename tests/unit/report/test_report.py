"""The report says what the records say, in every form, and nothing passes that no record shows."""

import re
from xml.etree import ElementTree

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract.verdict import FailureClass
from steps.errors import BadTask
from steps.report import checklists, html, junit, public, source, text, timeline
from steps.report.build import build


def test_the_first_stage_that_did_not_pass_gives_status_and_sentence(stored: source.Source) -> None:
    report = build(stored)
    assert [(stage.id, stage.status) for stage in report.stages] == [("os_prep", "pass"), ("gang", "fail"), ("slurm", "not run")]
    assert report.status == "fail"
    assert report.sentence == "gang: 3 of 17 pods bound on gpu002; expected none; next: check schedulerName"
    assert report.stages[1].failure_class == "runtime"
    assert (report.started, report.finished) == (100, 145)


def test_a_planned_stage_without_records_is_not_run(stored: source.Source) -> None:
    empty = build(msgspec.structs.replace(stored, records=()))
    assert {stage.status for stage in empty.stages} == {"not run"}
    assert empty.status == "not run"


def test_nodes_by_gate_and_quarantine(stored: source.Source) -> None:
    report = build(stored)
    rows = {node.name: node for node in report.nodes}
    assert rows["gpu001"].gates == {"os_prep/nodes": "pass"}
    assert rows["gpu003"].gates == {"os_prep/nodes": "fail"}
    assert rows["gpu003"].aside
    assert "timed out" in rows["gpu003"].reason
    assert report.stages[0].gates[0].passed == 3
    assert report.stages[0].gates[0].expected == 4


def test_html_is_one_file_without_scripts_or_references_and_escapes(stored: source.Source) -> None:
    page = html.html(build(stored))
    assert "<script" not in page
    assert not re.search(r"""(src|href)\s*=|url\(|@import""", page)
    assert "timed out &lt;b&gt;" in page
    assert "timed out <b>" not in page
    for said in ("gpu003", "volcano", "1.15.1", "sha256:p", "ada", "rehearsal", "Look at"):
        assert said in page


def test_junit_counts_inconclusive_as_failure_and_missing_as_skipped(stored: source.Source) -> None:
    suites = {suite.get("name"): suite for suite in ElementTree.fromstring(junit.junit(build(stored)))}
    assert suites["gang"].get("failures") == "2"
    assert suites["slurm"].get("skipped") == "2"
    assert [case.get("name") for case in suites["os_prep"]][:2] == ["os_prep/nodes", "os_prep/nodes sv1"]


def test_text_and_timeline(stored: source.Source) -> None:
    report = build(stored)
    assert "quarantined gpu003 in os_prep" in text.text(report)
    entries = timeline.timeline(report)
    assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
    assert {entry.kind for entry in entries} == {"run", "task", "verdict", "change", "finding", "approval"}
    assert "panic at" in timeline.note(report)


def test_the_public_report_names_no_host_address_path_or_place(stored: source.Source) -> None:
    whole = msgspec.json.encode(public.public(build(stored))).decode()
    for secret in ("gpu00", "sv1", "10.77", "/etc/", "/opt/", "rack7", "ada@example.org", "charts.example.org", "volcano-system"):
        assert secret not in whole, secret
    assert "node 3" in whole


def test_every_failure_class_has_a_checklist() -> None:
    assert set(checklists.every()) == set(FailureClass)
    assert all(one.inspect and one.recover for one in checklists.every().values())


def test_a_run_that_is_not_there_is_a_usage_error(store: Store) -> None:
    with pytest.raises(BadTask, match="no run r2"):
        source.read(store, "r2")
