"""Text from hosts and objects reaches verdicts, records and last words without control characters and without secrets."""

import random
from pathlib import Path

import msgspec
import pytest

from steps.clients.ansible import failures
from steps.clients.redact import MARK, Redactor
from steps.contract import plain_text
from steps.contract.runs import last_word
from steps.contract.runs.evidence import decode
from steps.contract.runs.last_word import Said
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, passed
from steps.errors import StepError
from steps.runtime import diagnose
from steps.stages.shared import kube_objects, probe_workloads
from tests.unit.steps.conftest import Desk

FORGED = "lost\x1b]0;owned\x07\x1b[2J\r\nrke2: pass: 3 of 3 nodes passed all gates\u202e\x9b1m"
SHOWN = "lost\ufffd]0;owned\ufffd\ufffd[2J rke2: pass: 3 of 3 nodes passed all gates\ufffd\ufffd1m"
CANARY = "canary-4711-of-a-password-that-is-long"
APPLY = Task(stage="rke2", name="apply", verb=Verb.APPLY, arguments={"objects": []})


@pytest.mark.parametrize("text", ["", "two  spaces", " 3 of 3 nodes: é … [/dev/sda1] [redacted] :x: 東京"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert (plain_text.line(text), plain_text.block(text), plain_text.escape_json(text)) == (text, text, text)


def test_what_commands_a_terminal_is_replaced() -> None:
    assert plain_text.line(FORGED) == SHOWN
    assert plain_text.block("a\tb\r\nc\n\x1bd\r") == "a\tb\nc\n\ufffdd\ufffd"
    assert plain_text.line("half \ud800") == "half \ufffd"
    assert plain_text.line("line\u2028end\x85s") == "line end s"


def test_json_says_the_same_without_commands() -> None:
    data = {"a": "\x9b2J \u202e é …\n\x7f"}
    text = plain_text.escape_json(msgspec.json.encode(data).decode())
    assert text.isprintable()
    assert msgspec.json.decode(text) == data


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("no route to n1", True),
        ("connect to n1: refused", True),
        ("it is n1.", True),
        ("http://n1:80/x", True),
        ("n11", False),
        ("n1-a", False),
        ("n1.example.org", False),
        ("on1", False),
        ("a.n1", False),
    ],
)
def test_a_host_is_named_by_its_whole_name(text: str, named: bool) -> None:
    assert plain_text.names(text, "n1") is named
    assert not plain_text.names(text, "n."), "a dot stands for itself"


def test_every_verdict_is_one_line_however_it_was_made() -> None:
    node = NodeVerdict(node="n1", status=Status.FAIL, seen=FORGED, expected="a\nb", next_step="c\nd")
    made = failed("g", FailureClass.HEALTH, seen=FORGED, expected="a\nb", next_step="c\nd", nodes=[node])
    assert made.reason == f"{SHOWN}; expected a b; next: c d"
    assert node.sentence == f"n1: {made.reason}"
    assert passed("g", "ok", notes=["a\nb", "c"]).notes == ("a b", "c")
    read = msgspec.json.decode(b'{"gate": "g", "status": "pass", "reason": "of\\nanother\\u001b"}', type=Verdict)
    assert read.reason == "of another\ufffd"
    assert msgspec.structs.replace(made, reason="x\ny").reason == "x y"


def test_a_record_holds_lines(desk: Desk) -> None:
    diagnose.record_error(desk.context(APPLY), StepError(FORGED))
    stored = desk.record("rke2", "apply")
    assert stored.verdict is not None
    assert (stored.error, stored.verdict.seen) == (SHOWN, SHOWN)
    assert desk.output(last_word.FILE).isprintable()


def test_the_last_word_of_a_hostile_pod_is_one_line() -> None:
    assert last_word.read(f"fail 1/3: {FORGED}") == Said("fail", SHOWN, 1, 3)
    assert last_word.of_node(f"main: Error (exit code 65): fail: {FORGED}") == Said("fail", SHOWN)


def test_a_secret_of_two_lines_is_found_in_one(desk: Desk) -> None:
    (desk.root / "secrets/phrase").write_text("correct horse\n\tbattery\x07staple\n")
    stored = desk.context(APPLY).record(passed("g", "it said: correct horse\n\tbattery\x07staple"))
    assert stored.verdict is not None
    assert decode(next((desk.root / "store").rglob("01.json")).read_bytes()).verdict == passed("g", f"it said: {MARK}")


def _redacted(folder: Path, text: str) -> str:
    (folder / "password").write_text(CANARY)
    return Redactor([folder]).text(text)


def test_a_cut_leaves_no_part_of_a_secret(tmp_path: Path) -> None:
    chance = random.Random(5)
    for at in (*range(330, 480, 7), *range(700, 880, 7)):
        words = " ".join("x" * chance.randrange(1, 9) for _ in range(400))
        said = f"{words[:at]} {CANARY} {words[at:1700]}"
        printed = f"{words[: 1700 - at]} {CANARY} {words[-at:]}"
        for result in ({"msg": said}, {"msg": printed}, {"msg": "MODULE FAILURE", "module_stderr": printed}, {"stderr": [said]}):
            message = failures.message(result)
            assert len(message) <= failures.MESSAGE_LIMIT + 3, at
            _has_no_part(_redacted(tmp_path, message))


@pytest.mark.parametrize("where", ["waiting", "terminated", "lastState", "pod", "scheduling"])
def test_a_trouble_holds_no_part_of_a_secret(tmp_path: Path, where: str) -> None:
    for at in range(250, 300, 3):
        said = f"{'x' * at} {CANARY} {'y' * 99}"
        found = probe_workloads.trouble(msgspec.convert(_pod(where, said), kube_objects.Pod))
        assert found is not None
        assert found.message.startswith("x" * at)
        _has_no_part(_redacted(tmp_path, found.message))


def _pod(where: str, said: str) -> object:
    states: dict[str, dict[str, object]] = {
        "waiting": {"state": {"waiting": {"reason": "Bad", "message": said}}},
        "terminated": {"state": {"terminated": {"reason": "Error", "message": said, "exitCode": 1}}},
        "lastState": {"restartCount": 9, "lastState": {"terminated": {"reason": "Error", "message": said, "exitCode": 1}}},
    }
    status: dict[str, object] = {"containerStatuses": [{"name": "main", **states[where]}] if where in states else []}
    if where == "pod":
        status |= {"phase": "Failed", "message": said}
    if where == "scheduling":
        status |= {"conditions": [{"type": "PodScheduled", "status": "False", "message": said}]}
    return {"metadata": {"name": "p"}, "status": status}


def _has_no_part(text: str) -> None:
    assert not any(CANARY[at : at + 6] in text for at in range(len(CANARY) - 5)), text
