"""Announcements of waiting approvals by a command of who follows: once, and never in the run's way."""

import json
from pathlib import Path

import pytest

from workflows import examples
from workflows.engines import approval_announcer
from workflows.engines.local.result import NodeNews, RunNodeStatus
from workflows.spec import load


def opened(name: str = "approve-validation") -> NodeNews:
    status = RunNodeStatus(f"r.{name}", name, "Suspend", "Running", "", name, "r", {}, {}, None, 1.8e9, None, [])
    return NodeNews(status, "")


def announcer(folder: Path, command: tuple[str, ...], said: list[str], about: str = "") -> approval_announcer.Announcer:
    told = {"validation": approval_announcer.AnnounceCommand(cluster="h200", approvers=("ada",), command=command)}
    claim = approval_announcer.local_claim(folder / "claims")
    return approval_announcer.Announcer("r", told, claim, lambda node: (f"of {node}", "do this"), said.append, lambda: about)


def test_a_command_hears_of_it_once(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):  # as if followed twice
        one = announcer(tmp_path, ("tee", "-a", str(tmp_path / "heard")), said)
        one.observe(opened())
        one.observe(opened("approve-unknown"))
        one.close()
    heard = json.loads((tmp_path / "heard").read_text())
    assert (heard["run"], heard["stage"], heard["approvers"], heard["how"]) == ("r", "validation", ["ada"], "do this")
    assert heard["evidence"] == "of approve-validation"
    assert heard["text"] == "h200: run r waits for an approval before validation since 2027-01-15T08:00:00Z: do this"
    assert said == []


def test_what_is_about_to_change_is_told(tmp_path: Path) -> None:
    changes = "packages against 0006-000000000000: 1 changed (gcc 12 → 13)"
    one = announcer(tmp_path, ("tee", str(tmp_path / "heard")), [], changes)
    one.observe(opened())
    one.close()
    heard = json.loads((tmp_path / "heard").read_text())
    assert heard["changes"] == changes
    assert heard["text"].endswith(f"({changes}): do this")


@pytest.mark.parametrize(
    ("command", "why"), [(("sh", "-c", "echo no >&2; exit 3"), "sh ended with 3: no"), (("/nowhere/notify",), "is not installed")]
)
def test_what_goes_wrong_is_a_warning(tmp_path: Path, command: tuple[str, ...], why: str) -> None:
    said: list[str] = []
    one = announcer(tmp_path, command, said)
    one.observe(opened())
    one.close()
    (sentence,) = said
    assert why in sentence


def test_only_commands_of_the_spec_are_for_who_follows(tmp_path: Path) -> None:
    def told(announcement: str) -> dict[str, approval_announcer.AnnounceCommand]:
        text = examples.path("single-node").read_text()
        path = tmp_path / "cluster.yaml"
        path.write_text(f"{text}approvals:\n  - before: validation\n    approvers: [ada]\n    announce: {announcement}\n")
        return approval_announcer.announce_commands(load(path))

    assert told("{command: [notify, me]}") == {
        "validation": approval_announcer.AnnounceCommand(cluster="single-node", approvers=("ada",), command=("notify", "me"))
    }
    for webhook in ("{file: url}", "{env: URL}", "{secret: {name: chat, key: url}}"):
        assert told(f"{{webhook: {webhook}}}") == {}  # the run itself tells it
