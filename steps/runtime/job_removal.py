"""Removes ended Jobs of a chart before its upgrade: a Job is immutable, so that Helm could not replace it."""

from __future__ import annotations

from msgspec import Struct

from steps.runtime.running_task import RunningTask


class ReplacedJobs(Struct, frozen=True, kw_only=True):
    """Jobs in `namespace` whose names begin with `prefix`, which the next release of their chart creates again."""

    namespace: str
    prefix: str


class _JobMeta(Struct, frozen=True):
    name: str


class _JobState(Struct, frozen=True):
    succeeded: int = 0
    failed: int = 0
    active: int = 0


class _EndedJob(Struct, frozen=True):
    metadata: _JobMeta
    status: _JobState = _JobState()


def remove(task: RunningTask, wanted: ReplacedJobs) -> None:
    """Delete the Jobs that have ended, whether they succeeded or failed; one that runs is left alone."""
    path = f"/apis/batch/v1/namespaces/{wanted.namespace}/jobs"
    for job in task.kube.list(path, _EndedJob) or ():
        ended = (job.status.succeeded or job.status.failed) and not job.status.active
        if job.metadata.name.startswith(wanted.prefix) and ended and task.kube.delete(f"{path}/{job.metadata.name}"):
            task.did(f"deleted ended Job {wanted.namespace}/{job.metadata.name}, which its chart creates again")
