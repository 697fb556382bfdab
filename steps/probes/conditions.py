"""Conditions as Kubernetes objects carry them, with their transition as seconds since the epoch."""

import datetime

from msgspec import Struct


class Condition(Struct, frozen=True, rename="camel"):
    """A condition of any object; nodes alone tell a heartbeat."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime.datetime | None = None
    last_transition_time: datetime.datetime | None = None

    @property
    def since(self) -> float:
        """When it last changed; 0 where not told."""
        return seconds(self.last_transition_time)

    @property
    def seen(self) -> float:
        """Its last heartbeat; 0 where not told."""
        return seconds(self.last_heartbeat_time)


def seconds(time: datetime.datetime | None) -> float:
    """A time as seconds since the epoch; 0 where there is none."""
    return time.timestamp() if time else 0.0
