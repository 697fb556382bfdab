"""The part of a running task that changes of the target need, so that they can be tested without a whole context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from steps.clients.clock import Clock

if TYPE_CHECKING:
    from steps.clients.kube.client import Kube


class RunningTask(Protocol):
    """A running task, as far as work in the target by exec, deletions and patches needs it; `did` records a change."""

    @property
    def kube(self) -> Kube:
        """Return the client of the target."""

    @property
    def clock(self) -> Clock:
        """Return the target's clock."""

    @property
    def own_gate(self) -> str:
        """Return the id under which the task's verdict is recorded."""

    def leaves(self, select: str) -> dict[str, str]:
        """Return host → leaf switch of the hosts that a selector takes."""

    def did(self, change: str) -> None:
        """Record a change."""
