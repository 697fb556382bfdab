"""Where a spec came from: the Git commit of its file, for the record of a run; never part of a plan or its digest."""

import msgspec
from msgspec import Struct

FILE = "source.json"
"""Name in the tasks folder and below `runs/RUN/`; there is none where the spec lies in no Git work tree."""


class Source(Struct, frozen=True, kw_only=True):
    """`path` is the spec's, relative to its work tree; `dirty`: it was not as this commit has it, or Git does not know it."""

    commit: str
    path: str
    dirty: bool
    schema: int = 1

    @property
    def sentence(self) -> str:
        """`Git 3f2a9c… (cluster.yaml changed since)`."""
        return f"Git {self.commit}, {self.path}{' with changes that are not committed' if self.dirty else ''}"


def key(run: str) -> str:
    """Where a run keeps it."""
    return f"runs/{run}/{FILE}"


def decode(data: bytes) -> Source:
    """Read `source.json`."""
    return msgspec.json.decode(data, type=Source)
