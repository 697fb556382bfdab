"""Container states as every pod probe reads them, and the common rule for a failing container.

API servers write `null` for times that they do not know (`finishedAt`), so such fields allow None.
"""

import msgspec
from msgspec import Struct

STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waiting reasons through which every container goes when it starts, so that they show no problem."""


class _Waiting(Struct, frozen=True):
    """State of a container that waits: reason and message."""

    reason: str = ""
    message: str = ""


class ContainerEnd(Struct, frozen=True, rename="camel"):
    """State of a container that ended: reason, message, exit code and times."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0
    started_at: str | None = None
    finished_at: str | None = None

    @property
    def well(self) -> bool:
        """Return True if the container ended with exit code 0."""
        return self.exit_code == 0 and self.reason in ("", "Completed")


class States(Struct, frozen=True):
    """State of a container: running, waiting or ended; one of the fields is set."""

    waiting: _Waiting | None = None
    terminated: ContainerEnd | None = None
    running: dict[str, msgspec.Raw] | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """Readiness of one container, its state and its last state."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: States = States()
    last_state: States = States()

    @property
    def ended_well(self) -> bool:
        """Return True if the container ended with exit code 0."""
        return self.state.terminated is not None and self.state.terminated.well

    @property
    def problem(self) -> _Waiting | ContainerEnd | None:
        """Return the waiting or ended state that shows a failure; None if it runs, is starting, or ended with exit code 0."""
        waiting, ended = self.state.waiting, self.state.terminated
        if waiting is not None:
            return waiting if waiting.reason not in STARTING else None
        return ended if ended is not None and not ended.well else None

    @property
    def restarted_after(self) -> ContainerEnd | None:
        """Return the failed end before the container's last restart; None if there was none, or if the container is ready now.

        A container in a crash loop shows no problem while it runs again.
        """
        ended = self.last_state.terminated
        return ended if ended is not None and not ended.well and not self.ready and self.restart_count > 0 else None

    @property
    def failing(self) -> bool:
        """Return True if the container waits with a problem or after a restart, ended badly, or runs without being ready."""
        if self.state.waiting is not None:
            return self.problem is not None or self.restart_count > 0
        return not self.ready and not self.ended_well

    @property
    def tells(self) -> bool:
        """Return True if the container shows a cause of failure: a problem, or restarts without being ready."""
        return self.problem is not None or (not self.ready and self.restart_count > 0)

    @property
    def started(self) -> bool:
        """Return True if the container has started at least once, so that it can have a log."""
        again = self.state.waiting is not None and self.state.waiting.reason == "CrashLoopBackOff"
        return self.state.running is not None or self.state.terminated is not None or self.restart_count > 0 or again
