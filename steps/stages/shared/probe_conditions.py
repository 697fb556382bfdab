"""Conditions of Kubernetes objects, with times as seconds since the epoch."""

import datetime

from msgspec import Struct


class Condition(Struct, frozen=True, rename="camel"):
    """A condition of any object; only nodes set the heartbeat time."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime.datetime | None = None
    last_transition_time: datetime.datetime | None = None

    @property
    def since(self) -> float:
        """Time of the last transition in seconds since the epoch; 0 if it is not set."""
        return seconds(self.last_transition_time)

    @property
    def seen(self) -> float:
        """Time of the last heartbeat in seconds since the epoch; 0 if it is not set."""
        return seconds(self.last_heartbeat_time)


def seconds(time: datetime.datetime | None) -> float:
    """Return a time as seconds since the epoch; 0 for None."""
    return time.timestamp() if time else 0.0
