"""The seal of a run: the digest of every file that belongs to it, so that a changed byte shows."""

import msgspec
from msgspec import Struct


class Sealed(Struct, frozen=True, kw_only=True):
    """One file of the run: its key below `runs/RUN/`, its digest and its size in bytes."""

    key: str
    sha256: str
    size: int


class Seal(Struct, frozen=True, kw_only=True):
    """All files of a run at its end. `status` is the workflow's: Succeeded, Failed or Error."""

    run: str
    plan: str
    status: str
    sealed: float
    files: tuple[Sealed, ...]
    schema: int = 1


FILE = "seal.json"
SIGNATURE = "seal.json.sig"
UNSEALED = (FILE, SIGNATURE)
"""The seal itself."""


def is_sealed(key: str) -> bool:
    """Whether a key below `runs/RUN/` belongs under the seal: all but the seal, the run's secrets and hidden files."""
    first = key.split("/", 1)[0]
    return key not in UNSEALED and first not in ("secrets", "logs") and not first.startswith(".")


def decode(data: bytes) -> Seal:
    """Read `seal.json`."""
    return msgspec.json.decode(data, type=Seal)
