"""Watches a gate: observes and judges until the gate passes, fails for good, or its deadline is reached."""

from collections.abc import Callable, Mapping, Set
from typing import Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.clock import Clock
from steps.contract.objects.charts import InstallJob, ReleaseState
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, Status, Verdict, inconclusive
from steps.errors import Temporary
from steps.stages.shared import causes

Look = Callable[[float], tuple[Any, Verdict]]
"""A function that makes one observation and returns it with the gate's verdict. It takes the time at which it is called."""


class Watched(Struct, frozen=True, kw_only=True):
    """Result of watching a gate: the last observation and verdict, and the time until then in seconds of the target's clock."""

    observation: Any
    verdict: Verdict
    waited: float


def watch_until_decided(look: Look, clock: Clock, deadline_seconds: float, stable_seconds: float = 0.0) -> Watched:
    """Observe until a pass held for `stable_seconds`, a final fail was seen again after a delay, or the deadline was reached.

    The observation at the deadline decides. A pass there that has not held for `stable_seconds` is turned into inconclusive.
    """
    start = began = clock.now()
    deadline, pause = start + deadline_seconds, timeouts.POLL_FIRST
    pass_since = fail_since = -1.0
    reasons: list[str] = []
    while True:
        observation, verdict = _look(look, began, began >= deadline)
        now = clock.now()
        if not verdict.is_pass and (not reasons or reasons[-1] != verdict.reason):
            reasons.append(verdict.reason)
        pass_since = _since(pass_since, verdict.is_pass, now)
        fail_since = _since(fail_since, verdict.final and not verdict.is_pass, now)
        # operators report states for a moment while they restart, so passes and final failures must last
        stable = verdict.is_pass and now - pass_since >= stable_seconds
        settled = fail_since >= 0 and now - fail_since >= timeouts.FAIL_CONFIRM
        if stable or settled or now >= deadline:
            ended = _at_end(verdict, stable, now - start)
            return Watched(observation=observation, verdict=_with_history(ended, reasons), waited=now - start)
        clock.pause(_next_pause(pause, verdict, now, pass_since, stable_seconds), deadline)
        pause, began = min(pause * timeouts.POLL_FACTOR, timeouts.POLL_MAX), clock.now()


def finalise(verdict: Verdict, lost: Set[str]) -> Verdict:
    """Return the verdict, made final if waiting cannot bring any missing node.

    A node is lost for good if its own verdict is final or if it is in `lost`. A gate that judges all nodes as one lacks every lost
    node.
    """
    missing = [row for row in verdict.nodes if row.status not in (Status.PASS, Status.SKIPPED)]
    over = all(row.final or row.node in lost for row in missing) if missing else bool(lost and not verdict.is_pass)
    return msgspec.structs.replace(verdict, final=True) if over else verdict


def _look(look: Look, began: float, last: bool) -> tuple[Any, Verdict]:
    """Observe once. An API server that does not answer counts as an inconclusive verdict, but is raised in the `last` look."""
    try:
        return look(began)
    # not the end: the GPU Operator's toolkit restarts containerd, and on RKE2 the API server with it (NVIDIA/gpu-operator#992)
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
    # look again when the pass has lasted long enough
    if verdict.is_pass:
        return min(pause, max(stable_seconds - (now - pass_since), 0.1))
    return min(pause, timeouts.FAIL_CONFIRM) if verdict.final else pause


def _with_history(verdict: Verdict, reasons: list[str]) -> Verdict:
    """Return the verdict with the previous reason as a note: it may be better, as when the log of a failed Job is gone."""
    if verdict.is_pass or len(reasons) < 2:
        return verdict
    return msgspec.structs.replace(verdict, notes=(*verdict.notes, f"before: {reasons[-2]}"))


def _at_end(verdict: Verdict, stable: bool, waited: float) -> Verdict:
    if verdict.is_pass and not stable:
        reason = f"passed only at the deadline and not for long enough to be stable: {verdict.reason}"
        return msgspec.structs.replace(verdict, status=Status.INCONCLUSIVE, reason=reason)
    if verdict.status is Status.INCONCLUSIVE:
        return msgspec.structs.replace(verdict, reason=f"still so after {waited:.0f} s: {verdict.reason}")
    return verdict


def keep_install_logs(seen: Any, before: Any) -> Any:
    """Return observation `seen` with logs and events from observation `before`, for install Jobs that now show no cause.

    Each try of a Job has its own pod and log, and the last one is deleted when the Job gives up. The reason was in them.
    """
    earlier = {state.job.uid: state.job for state in _releases(before) if state.job is not None}
    states = tuple(_with_log(state, earlier) for state in _releases(seen))
    return seen if states == _releases(seen) else msgspec.structs.replace(seen, releases=states)


def keep_check_pods(seen: Any, before: Any) -> Any:
    """Return observation `seen` with the pods of observation `before` that are gone and left no report.

    A Job whose time is up deletes its pods, and with them the reason why they never started.
    """
    if before is None or type(seen) is not type(before):
        return seen
    changes: dict[str, tuple[Any, ...]] = {}
    for name in type(seen).__struct_fields__:
        now, earlier = getattr(seen, name), getattr(before, name)
        if isinstance(now, tuple) and isinstance(earlier, tuple):
            there = {pod.name for pod in map(_check_pod, now) if pod is not None}
            gone = [item for item in earlier if (pod := _check_pod(item)) is not None and _is_lost(pod) and pod.name not in there]
            changes |= {name: (*now, *map(_as_gone, gone))} if gone else {}
    return msgspec.structs.replace(seen, **changes) if changes else seen


def _check_pod(item: Any) -> CheckPod | None:
    """Return the check pod that an entry of an observation is, or has in its field `pod`; None for other entries."""
    pod = item if isinstance(item, CheckPod) else getattr(item, "pod", None)
    return pod if isinstance(pod, CheckPod) else None


def _is_lost(pod: CheckPod) -> bool:
    return not pod.report and not pod.ended


def _as_gone(item: Any) -> Any:
    """Return an entry whose pod does not count as running any more; a pod that never started keeps its phase."""
    pod = _check_pod(item)
    if pod is None or pod.phase != "Running":
        return item
    gone = msgspec.structs.replace(pod, phase="Deleted")
    return gone if isinstance(item, CheckPod) else msgspec.structs.replace(item, pod=gone)


def _releases(seen: Any) -> tuple[ReleaseState, ...]:
    """Return the releases of an observation; none if it is about something else."""
    releases: tuple[ReleaseState, ...] = getattr(seen, "releases", ())
    return releases


def _with_log(state: ReleaseState, earlier: Mapping[str, InstallJob]) -> ReleaseState:
    job = state.job
    if job is None or job.complete or job.uid not in earlier or _tells(job):
        return state
    before = earlier[job.uid]
    # neither log names a cause, so the newer one is kept
    if job.log and not _tells(before):
        return state
    remembered = msgspec.structs.replace(job, log=before.log, events=job.events or before.events)
    return msgspec.structs.replace(state, job=remembered)


def _tells(job: InstallJob) -> bool:
    """Return True if the log names a cause. The log of a try that was cut off when the Job ended has only its first lines."""
    return causes.classify(causes.HELM, [("log", job.log)]) is not None
