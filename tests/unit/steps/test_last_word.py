"""The last word of a step in its pod's termination message: the record in one line, bounded, without secrets."""

import random

import msgspec
import pytest

from steps.contract.runs import last_word
from steps.contract.runs.evidence import Evidence
from steps.contract.runs.last_word import Said
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, of_nodes, passed
from tests.unit.steps.conftest import Desk

APPLY = Task(stage="rke2", name="apply", verb=Verb.APPLY, arguments={"objects": []})


def record(verdict: Verdict | None, *, error: str = "", shard: int = 0) -> Evidence:
    return Evidence(
        run="r",
        stage="s",
        task="t",
        verb="wait",
        shard=shard,
        attempt=1,
        input_digest="",
        engine="argo",
        started=1.0,
        finished=2.0,
        verdict=verdict,
        error=error,
    )


def broken(reason: str) -> Verdict:
    return failed("s/t", FailureClass.RUNTIME, seen=reason, expected="", next_step="")


def test_a_judge_that_fails_leaves_its_sentence(desk: Desk) -> None:
    checks = {"checks": [{"task": "play", "gate": "rke2/nodes"}], "needed": 1, "members": "all"}
    done = desk.run(Task(stage="rke2", name="judge", verb=Verb.JUDGE, arguments=checks))
    assert done.returncode == 65, done.stderr
    verdict = desk.record("rke2", "judge").verdict
    assert verdict is not None
    assert "task play left no record" in verdict.reason
    assert last_word.read(desk.output(last_word.FILE)) == Said("inconclusive", verdict.reason)


def test_the_last_record_counts_and_holds_no_secret(desk: Desk) -> None:
    canary = "canary-4711-of-a-password"
    (desk.root / "secrets/password").write_text(canary)
    context = desk.context(APPLY)
    context.record(passed("rke2/apply", "a first look, longer than the second"))
    context.record(broken(f"{'x' * (last_word.LONGEST - 50)} {canary} {'y' * 99}"))
    left = desk.output(last_word.FILE)
    assert left.startswith("fail: xxx")
    assert left.endswith("… (bringup report tells all)")
    assert len(left.encode()) <= last_word.LONGEST
    assert canary[:6] not in left  # nor the half of it that a cut would leave


def test_a_message_that_cannot_be_left_is_no_failure(desk: Desk) -> None:
    (desk.root / "out" / last_word.FILE).mkdir()
    desk.context(APPLY).record(passed("rke2/apply", "done"))
    assert desk.record("rke2", "apply").verdict is not None


def test_what_is_written_is_read_again() -> None:
    chance = random.Random(3)
    words = ["gpu001", "é", "…", "a: b", "1/2", "{{x}}", "\n", "fail 3/4: x", "(exit code 65)"]
    for number in range(200):
        reason = " ".join(chance.choices(words, k=chance.randrange(1, 400))).strip()
        nodes = [NodeVerdict(node=f"n{one}", status=chance.choice(list(Status))) for one in range(chance.randrange(3))]
        verdict = msgspec.structs.replace(broken(reason), nodes=tuple(nodes), status=chance.choice(list(Status)))
        text = last_word.render_last_word(record(verdict, error="x" * (number % 2)), str)
        assert len(text.encode()) <= (last_word.ERROR if number % 2 else last_word.LONGEST)
        said = last_word.read(text)
        assert said is not None
        assert (said.status, said.passed, said.nodes) == (verdict.status, verdict.passed_nodes, len(nodes))
        assert said.reason == verdict.reason or verdict.reason.startswith(said.reason.removesuffix("… (bringup report tells all)"))
        assert last_word.of_node(f"main: Error (exit code 65): {text}") == said
    assert last_word.read(last_word.render_last_word(record(None), str)) == last_word.RECORDED


def test_a_fanned_out_task_leaves_one_error_at_most() -> None:
    """Shards leave no errors: they are as many as the fleet has, and messages of failed pods are stored in the Workflow."""
    assert last_word.render_last_word(record(broken("no way"), error="no way", shard=7), str) == ""
    assert last_word.render_last_word(record(broken("no way"), error="no way"), str) == "fail: no way"
    nodes = [NodeVerdict(node="n1", status=Status.PASS)]
    assert last_word.render_last_word(record(of_nodes("s/t", nodes, what="up"), shard=7), str) == "pass 1/1: 1 of 1 nodes: up"
    build = msgspec.structs.replace(record(broken("x" * 900), shard=7), verb="build")
    assert len(last_word.render_last_word(build, str).encode()) <= last_word.ERROR
    assert len(last_word.render_last_word(record(broken("x" * 900), shard=7), str).encode()) > last_word.ERROR


@pytest.mark.parametrize(
    "message",
    [
        "",
        "main: Error (exit code 65)",
        "main: Error (exit code 64): failed to find name in PATH",
        "wait: Error (exit code 64): pass",
    ],
)
def test_other_messages_of_nodes_are_no_last_word(message: str) -> None:
    assert last_word.of_node(message) is None
