"""Observes and judges until the gate passes, fails for good, or its deadline comes."""

from collections.abc import Callable, Set
from typing import Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.clock import Clock
from steps.contract.verdict import FailureClass, Status, Verdict, inconclusive
from steps.errors import Temporary

Look = Callable[[], tuple[Any, Verdict]]
"""One observation and what the gate says of it."""


class Watched(Struct, frozen=True, kw_only=True):
    """The last look, and how long it took to get there (seconds of the target's clock)."""

    observation: Any
    verdict: Verdict
    waited: float


def until_decided(look: Look, clock: Clock, deadline_seconds: float, stable_seconds: float = 0.0) -> Watched:
    """Look until a pass held for `stable_seconds`, a final fail was seen twice, or the deadline came.

    The look at the deadline counts: what it says is the verdict, so a slow pass is a pass and an unfinished one is none.
    """
    start = clock.now()
    deadline, pause = start + deadline_seconds, timeouts.POLL_FIRST
    pass_since = fail_since = -1.0
    said: list[str] = []
    while True:
        observation, verdict = _look(look, clock.now() >= deadline)
        now = clock.now()
        if not verdict.is_pass and (not said or said[-1] != verdict.reason):
            said.append(verdict.reason)
        pass_since = _since(pass_since, verdict.is_pass, now)
        fail_since = _since(fail_since, verdict.final and not verdict.is_pass, now)
        stable = verdict.is_pass and now - pass_since >= stable_seconds
        settled = fail_since >= 0 and now - fail_since >= timeouts.FAIL_CONFIRM
        if stable or settled or now >= deadline:
            ended = _at_end(verdict, stable, now - start)
            return Watched(observation=observation, verdict=_with_history(ended, said), waited=now - start)
        clock.pause(_next_pause(pause, verdict, now, pass_since, stable_seconds), deadline)
        pause = min(pause * timeouts.POLL_FACTOR, timeouts.POLL_MAX)


def settled(verdict: Verdict, lost: Set[str]) -> Verdict:
    """The same, final where no waiting brings a node that is missing: its row is final, or it is among the expected ones that are
    lost. A gate that judges them as one lacks every lost one."""
    missing = [row for row in verdict.nodes if row.status not in (Status.PASS, Status.SKIPPED)]
    over = all(row.final or row.node in lost for row in missing) if missing else bool(lost and not verdict.is_pass)
    return msgspec.structs.replace(verdict, final=True) if over else verdict


def _look(look: Look, last: bool) -> tuple[Any, Verdict]:
    """One look. An API server that is away for a moment is no end: the GPU toolkit restarts RKE2 (gpu_stack §0.7)."""
    try:
        return look()
    except Temporary as error:
        if last:
            raise
        verdict = inconclusive(
            "api",
            seen=f"the API server does not answer: {error}",
            expected="an answer",
            next_step="wait",
            failure_class=FailureClass.RUNTIME,
        )
        return None, verdict


def _since(since: float, holds: bool, now: float) -> float:
    if not holds:
        return -1.0
    return since if since >= 0 else now


def _next_pause(pause: float, verdict: Verdict, now: float, pass_since: float, stable_seconds: float) -> float:
    if verdict.is_pass:
        return min(pause, max(stable_seconds - (now - pass_since), 0.1))
    return min(pause, timeouts.FAIL_CONFIRM) if verdict.final else pause


def _with_history(verdict: Verdict, said: list[str]) -> Verdict:
    """Keep what was said before the end: the better reason may be gone by then (a failed install Job's log goes with its pod)."""
    if verdict.is_pass or len(said) < 2:
        return verdict
    return msgspec.structs.replace(verdict, notes=(*verdict.notes, f"before: {said[-2]}"))


def _at_end(verdict: Verdict, stable: bool, waited: float) -> Verdict:
    if verdict.is_pass and not stable:
        reason = f"passed only at the deadline and not for long enough to be stable: {verdict.reason}"
        return msgspec.structs.replace(verdict, status=Status.INCONCLUSIVE, reason=reason)
    if verdict.status is Status.INCONCLUSIVE:
        return msgspec.structs.replace(verdict, reason=f"still so after {waited:.0f} s: {verdict.reason}")
    return verdict
