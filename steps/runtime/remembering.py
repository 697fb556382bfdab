"""Memory of a waiting step: the log of an install Job is deleted with its pod, so that only an earlier observation has it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from steps.contract.charts import InstallJob, ReleaseState
from steps.stages.shared import causes


def carried(seen: Any, before: Any) -> Any:
    """Return the observation with log and events of the one before, for each install Job that is the same and now shows no cause.

    Each try of a Job has its own pod and log, and the last one is deleted when the Job gives up. The reason was in them.
    """
    earlier = {state.job.uid: state.job for state in _releases(before) if state.job is not None}
    states = tuple(_with_log(state, earlier) for state in _releases(seen))
    return seen if states == _releases(seen) else msgspec.structs.replace(seen, releases=states)


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
