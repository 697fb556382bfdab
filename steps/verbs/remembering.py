"""What an earlier look of a waiting step saw and a later one cannot: the log of an install Job is deleted with its pod."""

from collections.abc import Mapping
from typing import Any

import msgspec

from steps.contract.charts import InstallJob, ReleaseState
from steps.gates import causes


def carried(seen: Any, before: Any) -> Any:
    """The observation, with log and events of the look before for each install Job that is the same and now tells no cause.

    Each try of a Job has a pod and log of its own, and the last one goes when the Job gives up: the reason was in them.
    """
    earlier = {state.job.uid: state.job for state in _releases(before) if state.job is not None}
    states = tuple(_with_log(state, earlier) for state in _releases(seen))
    return seen if states == _releases(seen) else msgspec.structs.replace(seen, releases=states)


def _releases(seen: Any) -> tuple[ReleaseState, ...]:
    """The releases of an observation; none where it is not about any."""
    found: tuple[ReleaseState, ...] = getattr(seen, "releases", ())
    return found


def _with_log(state: ReleaseState, earlier: Mapping[str, InstallJob]) -> ReleaseState:
    job = state.job
    if job is None or job.complete or job.uid not in earlier or _tells(job):
        return state
    before = earlier[job.uid]
    if job.log and not _tells(before):
        return state
    kept = msgspec.structs.replace(job, log=before.log, events=job.events or before.events)
    return msgspec.structs.replace(state, job=kept)


def _tells(job: InstallJob) -> bool:
    """Whether the log names a cause: that of a try which was cut off, with the Job's end, has only its first lines."""
    return causes.classify(causes.HELM, [("log", job.log)]) is not None
