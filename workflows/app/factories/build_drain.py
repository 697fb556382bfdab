"""The drain of a factory before its rebuild: schedules are suspended, and builds that run are waited for."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from steps.clients.kube.client import Kube
from steps.contract.plain_text import count
from workflows.app.factories.rebuild_refusals import unfinished

LOOK_SECONDS = 5.0
"""Time between two looks at builds, of which most take minutes."""
_CRON_WORKFLOWS = "/apis/argoproj.io/v1alpha1/cronworkflows"


class _ScheduleName(Struct, frozen=True):
    name: str
    namespace: str


class _ScheduleSuspension(Struct, frozen=True):
    suspend: bool = False


class LiveSchedule(Struct, frozen=True):
    """A CronWorkflow of a factory as the API returns it."""

    metadata: _ScheduleName
    spec: _ScheduleSuspension = _ScheduleSuspension()

    @property
    def path(self) -> str:
        """Return its API path."""
        return f"/apis/argoproj.io/v1alpha1/namespaces/{self.metadata.namespace}/cronworkflows/{self.metadata.name}"


def drain(
    kubeconfig: Path,
    seconds: float,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    confirm: Callable[[], None] = lambda: None,
) -> tuple[str, ...]:
    """Suspend the schedules of a factory and wait for the end of its builds; return those that run after `seconds`.

    If some do, or if `confirm`, which is called once none does, raises an error, the schedules act again: the factory stays.
    Raises StepError if the factory does not answer.
    """
    kube, deadline = Kube.from_file(kubeconfig, who="factory rebuild"), time.monotonic() + seconds
    suspended = [schedule for schedule in kube.list(_CRON_WORKFLOWS, LiveSchedule) or () if not schedule.spec.suspend]
    running: list[str] = []
    _suspend(kube, suspended, True)
    try:
        while (running := unfinished(kube)) and time.monotonic() < deadline:
            say(f"draining: {count(len(running), 'build')} run, first {running[0]}")
            pause(LOOK_SECONDS)
        if not running:
            confirm()
    except BaseException:
        _suspend(kube, suspended, False)  # neither an interrupted wait nor a refusal may leave a factory that starts nothing
        raise
    if running:
        _suspend(kube, suspended, False)
    return tuple(running)


def _suspend(kube: Kube, schedules: list[LiveSchedule], is_suspended: bool) -> None:
    for schedule in schedules:
        kube.merge(schedule.path, {"spec": {"suspend": is_suspended}})
