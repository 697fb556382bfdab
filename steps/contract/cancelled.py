"""Cancellation of a run: who ended it and how, so that the report names a person instead of an engine's strategy."""

import msgspec
from msgspec import Struct


class Cancelled(Struct, frozen=True, kw_only=True):
    """A request to cancel a run. `who` is a login name, `how` is `Ctrl-C` or a command, `when` is UTC seconds since the epoch."""

    who: str
    how: str
    when: float
    schema: int = 1

    @property
    def sentence(self) -> str:
        """Return the cancellation in words, such as `cancelled by ada (Ctrl-C)`."""
        return f"cancelled by {self.who} ({self.how})"


def key(run: str) -> str:
    """Return the store key of a run's cancellation. The first request is kept."""
    return f"runs/{run}/cancelled.json"


def decode(data: bytes) -> Cancelled:
    """Read `cancelled.json`."""
    return msgspec.json.decode(data, type=Cancelled)
