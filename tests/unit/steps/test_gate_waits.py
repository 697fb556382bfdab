"""Waiting: a pass must hold, a final fail must be seen twice, the deadline is kept, an absent API server is borne."""

from collections.abc import Callable, Iterator

import pytest

from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, inconclusive, of_nodes, passed
from steps.errors import Temporary
from steps.runtime.watching import finalise, watch_until_decided


class Ticking:
    """A clock that moves only when somebody pauses."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float, deadline: float) -> None:
        self.time = min(self.time + seconds, deadline)


GOOD = passed("g/control", "fine")
BUSY = inconclusive("g/control", seen="busy", expected="idle", next_step="wait")
BROKEN = failed("g/control", FailureClass.HEALTH, seen="broken", expected="whole", next_step="mend", final=True)
ILL = failed("g/control", FailureClass.HEALTH, seen="ill", expected="well", next_step="wait")


def script(*verdicts: Verdict | Temporary) -> Callable[[float], tuple[None, Verdict]]:
    """Looks that give these verdicts in turn, the last one for ever."""
    rest: Iterator[Verdict | Temporary] = iter(verdicts)
    last: list[Verdict | Temporary] = []

    def look(_: float) -> tuple[None, Verdict]:
        last[:] = [next(rest, last[0] if last else BUSY)]
        if isinstance(last[0], Temporary):
            raise last[0]
        return None, last[0]

    return look


@pytest.mark.parametrize(
    ("verdicts", "stable", "status", "waited"),
    [
        ((GOOD,), 0, Status.PASS, 0),
        ((BUSY, BUSY, GOOD), 0, Status.PASS, 5),
        ((BUSY,), 0, Status.INCONCLUSIVE, 600),
        ((ILL,), 0, Status.FAIL, 600),
        ((ILL, GOOD), 0, Status.PASS, 2),
        ((BROKEN,), 0, Status.FAIL, 10),
        ((BROKEN, GOOD), 0, Status.PASS, 2),
        ((GOOD,), 60, Status.PASS, 60),
        ((GOOD, BUSY, GOOD), 60, Status.PASS, 65),
        ((Temporary("away"), Temporary("away"), GOOD), 0, Status.PASS, 5),
    ],
    ids=[
        "at once",
        "third look",
        "never",
        "ill to the end",
        "heals",
        "broken for good",
        "broken for a moment",
        "holds",
        "flaps",
        "away",
    ],
)
def test_waiting(verdicts: tuple[Verdict | Temporary, ...], stable: float, status: Status, waited: float) -> None:
    watched = watch_until_decided(script(*verdicts), Ticking(), 600, stable)
    assert watched.verdict.status is status
    assert watched.waited == pytest.approx(waited, abs=8 if waited in (10, 60, 65) else 0.01)


def test_what_is_still_open_at_the_deadline_says_how_long() -> None:
    assert watch_until_decided(script(BUSY), Ticking(), 600).verdict.reason.startswith("still so after 600 s: busy")


def test_an_api_server_away_at_the_deadline_is_temporary() -> None:
    with pytest.raises(Temporary, match="away"):
        watch_until_decided(script(Temporary("away")), Ticking(), 600)


def test_a_pass_that_begins_at_the_deadline_is_not_stable() -> None:
    assert watch_until_decided(script(*[BUSY] * 40, GOOD), Ticking(), 300, 60).verdict.status is Status.INCONCLUSIVE


def row(node: str, status: Status, *, final: bool = False) -> NodeVerdict:
    kind = None if status is Status.PASS else FailureClass.RUNTIME
    return NodeVerdict(node=node, status=status, seen="x", expected="y", next_step="z", failure_class=kind, final=final)


@pytest.mark.parametrize(
    ("rows", "lost", "final"),
    [
        ([row("a", Status.PASS), row("b", Status.FAIL, final=True)], set(), True),
        ([row("a", Status.INCONCLUSIVE), row("b", Status.FAIL, final=True)], set(), False),
        ([row("a", Status.INCONCLUSIVE), row("b", Status.FAIL, final=True)], {"a"}, True),
        ([row("a", Status.INCONCLUSIVE), row("b", Status.FAIL)], {"a"}, False),
        ([row("a", Status.PASS)], {"a"}, False),
    ],
    ids=["a row that is final", "one still comes", "the other is lost", "one fails for now", "nobody is missing"],
)
def test_nodes_are_waited_for_while_one_may_still_come(rows: list[NodeVerdict], lost: set[str], final: bool) -> None:
    assert finalise(of_nodes("g/nodes", rows, what="fine"), lost).final is final


def test_a_gate_that_judges_servers_as_one_does_not_wait_for_a_lost_one() -> None:
    assert finalise(BUSY, {"sv1"}).final
    assert not finalise(BUSY, set()).final
    assert not finalise(GOOD, {"sv1"}).final
