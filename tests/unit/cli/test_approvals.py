"""Approvals through the command line: who may open one, what a name and a key prove, and what the evidence keeps of it."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.pseudo_terminal import in_a_terminal

ADA = "ada@example.org"


@pytest.fixture
def key(tmp_path: Path) -> Callable[[str], tuple[Path, str]]:
    """Makes an SSH key pair of a person: private file and public line."""

    def make(name: str) -> tuple[Path, str]:
        path = tmp_path / f"key-{len(list(tmp_path.glob('key-*')))}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path], check=True)
        return path, path.with_suffix(".pub").read_text().strip()

    return make


def approvals(machine: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(machine.call("report", "-o", "json").out)["approvals"]
    return found


def test_a_held_rehearsal_goes_on_when_the_right_person_says_so(machine: Any, approved: Callable[..., str]) -> None:
    (machine.folder / "held.yaml").write_text(approved())
    held = machine.hold("held.yaml")
    status = json.loads(machine.call("status", "-o", "json").out)
    assert status["phase"] == "Running"
    assert {row["stage"]: row["status"] for row in status["stages"]} == {"os_prep": "pass", "rke2": "to come"}
    (waiting,) = status["waiting"]
    assert waiting["stage"] == "rke2"
    assert waiting["approvers"] == "ada@example.org, grace@example.org"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", waiting["since"])
    assert waiting["how"] == f"bringup approve {machine.runs[0].name} --as NAME --evidence {waiting['evidence']}"
    assert f"rke2: waits for an approval ({waiting['how']})" in held.out.read_text()
    assert waiting["about"].startswith(f"os_prep in {machine.runs[0].name}: pass: 19 of 19 nodes")
    assert "waits for an approval" in machine.call("timeline").out
    shown = machine.call("status").out
    assert f"waits for an approval before rke2 since {waiting['since']}: {waiting['how']}\n" in shown
    assert f"it is about {waiting['about']}\n" in shown

    wrong = machine.call("approve", "--as", "mallory@example.org")
    assert wrong.code == 64
    assert "mallory@example.org is not among the approvers" in wrong.err
    assert "rke2" in machine.call("approve", "--as", ADA, "--stage", "slurm").err
    assert held.process.poll() is None

    given = machine.call("approve", "--as", ADA)
    assert given.code == 0, given.err
    assert f"approved os_prep in {machine.runs[0].name} as {ADA}, evidence {waiting['evidence']}; rke2 starts" in given.out
    done = held.end()
    assert done.code == 0, done.text
    assert f"{ADA} approved os_prep, before rke2" in done.out
    told = [
        entry
        for entry in json.loads(machine.call("timeline", "-o", "json").out)
        if entry["where"] in ("before rke2", "rke2/confirm")
    ]
    assert [entry["kind"] for entry in told] == ["waiting", "approval", "task", "verdict"]
    assert told[0]["text"] == "waits for approval of os_prep"
    (answer,) = approvals(machine)
    assert (answer["approver"], answer["decision"], answer["evidence"]) == (ADA, "pass", waiting["evidence"])
    assert ADA in machine.call("report", "-o", "html").out


def answered(machine: Any, command: str, answer: str) -> tuple[int, str]:
    """`approve` in a terminal of a person who answers its question."""
    return in_a_terminal(machine.environment({"TERM": "dumb"}), [command, "approve", "--as", ADA], answer=answer)


def test_nobody_approves_what_they_have_not_seen(machine: Any, approved: Callable[..., str], command: str) -> None:
    """A script names the digest; a person in a terminal is shown what it is about, and asked."""
    (machine.folder / "held.yaml").write_text(approved())
    held = machine.hold("held.yaml")
    unseen = machine.call("approve", "--as", ADA)
    assert (unseen.code, f"shown none of it yet: os_prep in {machine.runs[0].name}: pass: " in unseen.err) == (64, True), unseen.err
    digest = unseen.err.strip().rpartition(" ")[2]
    assert unseen.err.endswith(f"hint: if that is to be approved: --evidence {digest}\n")
    cut = machine.call("approve", "--as", ADA, "--evidence", digest[:19])
    assert (cut.code, "is not a digest of evidence" in cut.err) == (64, True)
    other = machine.call("approve", "--as", ADA, "--evidence", "sha256:" + "0" * 64)
    assert (other.code, f"it is {digest} now" in other.err) == (64, True)

    code, said = answered(machine, command, "n")
    assert (code, "nothing was answered" in said, f"evidence {digest}" in said) == (64, True, True), said
    assert held.process.poll() is None
    code, said = answered(machine, command, "y")
    assert (code, "approved os_prep in" in said) == (0, True), said
    assert held.end().code == 0


def test_a_rejection_ends_the_run(machine: Any, approved: Callable[..., str]) -> None:
    (machine.folder / "held.yaml").write_text(approved())
    held = machine.hold("held.yaml")
    assert machine.call("approve", "--as", "grace@example.org", "--reject").code == 0
    done = held.end()
    assert done.code == 65
    assert "grace@example.org answered reject; expected a yes to os_prep before rke2; next: start the rehearsal again" in done.out
    (answer,) = approvals(machine)
    assert (answer["approver"], answer["decision"], answer["status"]) == ("grace@example.org", "reject", "fail")
    assert machine.call("verify", machine.runs[0]).code == 0


def test_an_approver_with_a_key_must_sign_with_it(
    machine: Any, approved: Callable[..., str], key: Callable[[str], tuple[Path, str]]
) -> None:
    (private, public), (other, _) = key(ADA), key(ADA)
    (machine.folder / "keyed.yaml").write_text(approved(public))
    held = machine.hold("keyed.yaml")
    unsigned = machine.call("approve", "--as", ADA)
    assert unsigned.code == 64
    assert f"the spec lists an SSH key for {ADA}: this approval must be signed" in unsigned.err
    assert "--key" in unsigned.err
    assert machine.call("approve", "--as", ADA, "--key", machine.folder / "nowhere").code == 64
    assert held.process.poll() is None  # nothing of this answered for her

    assert machine.call("status").code == 0
    refused = machine.call("approve", "--as", ADA, "--key", other)
    assert refused.code == 64
    assert f"which is not the key that the spec lists for {ADA}; nothing was answered" in refused.err
    assert machine.call("rehearse", "keyed.yaml", "--approve-as", ADA, "--key", other).code == 64
    assert held.process.poll() is None  # a wrong key ends nothing: the run still waits
    assert machine.call("approve", "--as", ADA, "--key", private).code == 0
    assert held.end().code == 0

    signed = machine.call("rehearse", "keyed.yaml", "--approve-as", ADA, "--key", private)
    assert signed.code == 0, signed.text
    (answer,) = approvals(machine)
    assert (answer["approver"], answer["signed"]) == (ADA, True)


def test_confirm_fails_closed_without_a_signature(
    machine: Any, approved: Callable[..., str], key: Callable[[str], tuple[Path, str]]
) -> None:
    (machine.folder / "keyed.yaml").write_text(approved(key(ADA)[1]))
    done = machine.call("rehearse", "keyed.yaml", "--approve-as", ADA)
    assert done.code == 65
    assert f"no signature of {ADA} in the store" in done.out
    (answer,) = approvals(machine)
    assert (answer["signed"], answer["status"]) == (False, "fail")
