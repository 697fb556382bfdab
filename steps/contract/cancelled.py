"""A cancelled run: who ended it and how, so that its report names a person and not a strategy of its engine."""

import msgspec
from msgspec import Struct


class Cancelled(Struct, frozen=True, kw_only=True):
    """`who` is the login name of whoever asked; `how` is `Ctrl-C` or the command; `when` is UTC seconds since the epoch."""

    who: str
    how: str
    when: float
    schema: int = 1

    @property
    def sentence(self) -> str:
        """`cancelled by ada (Ctrl-C)`."""
        return f"cancelled by {self.who} ({self.how})"


def key(run: str) -> str:
    """Where it lies; the first who asks is kept."""
    return f"runs/{run}/cancelled.json"


def decode(data: bytes) -> Cancelled:
    """Read `cancelled.json`."""
    return msgspec.json.decode(data, type=Cancelled)
