"""Git commit of a spec's file, for the record of a run; it is never part of a plan or its digest."""

import base64
import binascii

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON

FILE = "source.json"
"""File name in the tasks folder and below `runs/RUN/`. There is none if the spec is in no Git work tree."""

NONE = "none"


class SpecSource(Struct, frozen=True, kw_only=True):
    """Git commit and path of a spec's file. `dirty`: the file differed from the commit, or Git does not track it."""

    commit: str
    path: str
    dirty: bool
    schema: int = 1

    @property
    def sentence(self) -> str:
        """Return commit and path in words, such as `Git 3f2a9c…, cluster.yaml with changes that are not committed`."""
        return f"Git {self.commit}, {self.path}{' with changes that are not committed' if self.dirty else ''}"


def key(run: str) -> str:
    """Return the store key of the Git source of a run's spec."""
    return f"runs/{run}/{FILE}"


def token(source: SpecSource | None) -> str:
    """Return the source as one word for a workflow's parameter `source`: base64url of its JSON, safe in shells; `none` for none."""
    return NONE if source is None else base64.urlsafe_b64encode(msgspec.json.encode(source)).rstrip(b"=").decode()


def from_token(text: str) -> SpecSource | None:
    """Return the source in a `token`; None for `none`. Raises ValueError for any other text."""
    if text in ("", NONE):
        return None
    try:
        return decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, *UNREADABLE_JSON) as error:
        raise ValueError(f"{text[:40]!r} is no source: {error}") from error


def decode(data: bytes) -> SpecSource:
    """Read `source.json`."""
    return msgspec.json.decode(data, type=SpecSource)
