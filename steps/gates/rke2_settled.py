"""Whether a pod has run long enough to be taken for steady: what has just started may be about to end again."""

from steps.contract.stages.rke2 import StaticPod


def unsettled(pod: StaticPod, now: float, settled: float, storm: int, calm: float) -> str:
    """What keeps a pod from being taken for steady; empty where it is. `now` is the target's clock in seconds since the epoch.

    It must have run for `settled` seconds; one that started again `storm` times or more, for `calm` seconds.
    """
    needed = calm if pod.restarts >= storm else settled
    if not pod.started:
        return f"does not tell when it started ({pod.restarts} restarts)"
    age = max(now - pod.started, 0.0)
    return f"started {age:.0f} s ago, after {pod.restarts} restarts" if age < needed else ""
