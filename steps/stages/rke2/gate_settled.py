"""Checks that a pod has run long enough to count as steady: a pod that has just started may be about to end again."""

from steps.stages.rke2.contract import StaticPod


def unsettled(pod: StaticPod, now: float, settled: float, storm: int, calm: float) -> str:
    """Return the reason for which a pod is not steady; empty if it is. `now` is the target's clock in seconds since the epoch.

    A pod must have run for `settled` seconds; with `storm` or more restarts, for `calm` seconds.
    """
    needed = calm if pod.restarts >= storm else settled
    if not pod.started:
        return f"does not tell when it started ({pod.restarts} restarts)"
    age = max(now - pod.started, 0.0)
    return f"started {age:.0f} s ago, after {pod.restarts} restarts" if age < needed else ""
