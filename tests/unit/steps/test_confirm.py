"""Approvals: only a named pass of the evidence that is there now, signed where keys are listed, gets through."""

import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients import signature
from steps.contract.runs import approval
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb

RECORD = Evidence(
    run="r1",
    stage="slurm",
    task="judge",
    verb="judge",
    shard=0,
    attempt=1,
    input_digest="d",
    engine="local",
    started=1.0,
    finished=2.0,
)


def confirm(approvers: dict[str, list[str]] | None = None) -> Task:
    return Task(
        stage="validation", name="confirm", verb=Verb.CONFIRM, arguments={"approved": "slurm", "approvers": approvers or {}}
    )


def answer(decision: str, approver: str, evidence: str) -> list[str]:
    return [
        part
        for pair in (("decision", decision), ("approver", approver), ("evidence", evidence))
        for part in ("--input", "=".join(pair))
    ]


@pytest.fixture
def shown(desk: Any) -> str:
    desk.store.write_evidence(RECORD, msgspec.json.encode)
    return desk.store.evidence_digest("r1", "slurm")


def test_a_named_pass_of_the_present_evidence(desk: Any, shown: str) -> None:
    done = desk.run(confirm(), *answer("pass", "ada@example.org", shown))
    assert done.returncode == 0, done.stderr
    assert desk.record("validation", "confirm").observation["approver"] == "ada@example.org"


@pytest.mark.parametrize(
    ("decision", "approver", "evidence", "said"),
    [
        ("hold", "none", "none", "nobody approved in time"),
        ("reject", "ada", None, "ada answered reject"),
        ("pass", "none", None, "without a name"),
        ("pass", "ada {{x}}", None, "without a name"),
        ("pass", "ada", "sha256:old", "approved evidence sha256:old"),
    ],
)
def test_anything_else_ends_with_65(desk: Any, shown: str, decision: str, approver: str, evidence: str | None, said: str) -> None:
    assert desk.run(confirm(), *answer(decision, approver, evidence or shown)).returncode == 65
    verdict = desk.record("validation", "confirm").verdict
    assert verdict is not None
    assert said in verdict.reason


def test_a_refusal_shows_what_was_approved_what_is_there_now_and_who_may(desk: Any, shown: str) -> None:
    desk.store.write_evidence(msgspec.structs.replace(RECORD, finished=99.0), msgspec.json.encode)
    now = desk.store.evidence_digest("r1", "slurm")
    assert desk.run(confirm({"ada": []}), *answer("pass", "ada", shown)).returncode == 65
    found = {one.what: one for one in desk.record("validation", "confirm").diagnosis}
    assert found["answer"].content.splitlines() == [
        "decision pass", "approver ada", f"evidence approved {shown}", f"evidence now {now}",
    ]  # fmt: skip
    newest, older = found["records behind the evidence now"].content.splitlines()
    assert newest.startswith("1970-01-01T00:01:39Z runs/r1/evidence/slurm/judge/0000/02.json sha256:")
    assert "/01.json sha256:" in older
    assert found["approvers"].content == "ada: name alone"
    assert found["checklist"].content.endswith("#permission")


def test_no_answer_at_all_ends_with_65(desk: Any, shown: str) -> None:
    assert desk.run(confirm()).returncode == 65


def test_listed_keys_demand_a_valid_signature_of_that_person(desk: Any, shown: str, tmp_path: Path) -> None:
    for name in ("ada", "eve"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    task = confirm({"ada": [(tmp_path / "ada.pub").read_text()]})
    assert desk.run(task, *answer("pass", "ada", shown)).returncode == 65, "no signature"
    said = [one.content for one in desk.record("validation", "confirm").diagnosis if one.what == "approvers"]
    assert said == ["ada: 1 keys\nsignature runs/r1/approvals/slurm/ada.sig: not there"]
    assert desk.run(task, *answer("pass", "eve", shown)).returncode == 65, "not listed"
    statement = approval.statement_bytes(
        approval.Statement(run="r1", stage="slurm", evidence=shown, decision="pass", approver="ada")
    )
    key = approval.signature_key("r1", "slurm", "ada")
    desk.store.replace(key, signature.sign(statement, tmp_path / "eve"))
    assert desk.run(task, *answer("pass", "ada", shown)).returncode == 65, "signed by another key"
    desk.store.replace(key, signature.sign(statement, tmp_path / "ada"))
    assert desk.run(task, *answer("pass", "ada", shown)).returncode == 0


@pytest.mark.parametrize(
    ("ended_ago", "timeout", "said"),
    [
        (60.0, 3600, "somebody resumed the run without an answer (a bare `argo resume`"),
        (7200.0, 3600, "nobody approved in time"),
        (60.0, 0, "nobody approved in time"),
    ],
)
def test_a_bare_resume_is_told_from_a_time_out(desk: Any, ended_ago: float, timeout: int, said: str) -> None:
    record = msgspec.structs.replace(RECORD, finished=time.time() - ended_ago)
    desk.store.write_evidence(record, msgspec.json.encode)
    task = confirm()
    task = msgspec.structs.replace(task, arguments={**task.arguments, "timeout_seconds": timeout})
    assert desk.run(task, *answer("hold", "none", "none")).returncode == 65
    assert said in desk.record("validation", "confirm").verdict.reason
