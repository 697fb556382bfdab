"""The seal of a run: the digest of every file that belongs to it, so that a changed byte shows."""

import msgspec
from msgspec import Struct

from steps.contract.canonical import digest


class Sealed(Struct, frozen=True, kw_only=True):
    """One file of the run: its key below `runs/RUN/`, its digest and its size in bytes."""

    key: str
    sha256: str
    size: int


class Seal(Struct, frozen=True, kw_only=True):
    """All files of a run at its end. `status` is the workflow's: Succeeded, Failed or Error.

    `digest` is over the canonical JSON of all other fields: it shows a slip of a byte in the seal itself. Who wants to deceive
    can compute it anew; against that stands the signature.
    """

    run: str
    plan: str
    status: str
    sealed: float
    files: tuple[Sealed, ...]
    schema: int = 1
    digest: str = ""


FILE = "seal.json"
SIGNATURE = "seal.json.sig"
UNSEALED = (FILE, SIGNATURE)
"""The seal itself."""


def is_sealed(key: str) -> bool:
    """Whether a key below `runs/RUN/` belongs under the seal: all but the seal, the run's secrets and hidden files."""
    first = key.split("/", 1)[0]
    return key not in UNSEALED and first != "secrets" and not first.startswith(".")


def closed(seal: Seal) -> Seal:
    """The seal with its own digest."""
    return msgspec.structs.replace(seal, digest=own_digest(seal))


def own_digest(seal: Seal) -> str:
    """The digest over everything else in the seal."""
    return digest({name: value for name, value in msgspec.to_builtins(seal).items() if name != "digest"})


def decode(data: bytes) -> Seal:
    """Read `seal.json`. Raises msgspec.DecodeError when it is none."""
    return msgspec.json.decode(data, type=Seal)
