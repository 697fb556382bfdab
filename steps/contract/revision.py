"""Where a spec came from: the Git commit of its file, for the record of a run; never part of a plan or its digest."""

import base64
import binascii

import msgspec
from msgspec import Struct

FILE = "source.json"
"""Name in the tasks folder and below `runs/RUN/`; there is none where the spec lies in no Git work tree."""

NONE = "none"


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


def token(source: Source | None) -> str:
    """One word for a workflow's parameter `source`: base64url of its JSON, so that no path is ever expanded; `none` for none."""
    return NONE if source is None else base64.urlsafe_b64encode(msgspec.json.encode(source)).rstrip(b"=").decode()


def from_token(text: str) -> Source | None:
    """The opposite of `token`. Raises ValueError for what that never made."""
    if text in ("", NONE):
        return None
    try:
        return decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.MsgspecError) as error:
        raise ValueError(f"{text[:40]!r} is no source: {error}") from error


def decode(data: bytes) -> Source:
    """Read `source.json`."""
    return msgspec.json.decode(data, type=Source)
