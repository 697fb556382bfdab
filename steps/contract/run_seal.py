"""The seal of a run: the digest of every file that belongs to it, which shows any changed byte."""

import msgspec
from msgspec import Struct

from steps.contract.canonical import digest


class Sealed(Struct, frozen=True, kw_only=True):
    """A file of the run: its key below `runs/RUN/`, its digest and its size in bytes."""

    key: str
    sha256: str
    size: int


class Seal(Struct, frozen=True, kw_only=True):
    """All files of a run at its end. `status` is the workflow's: Succeeded, Failed or Error.

    `digest` is over the canonical JSON of all other fields and shows an accidental change of the seal itself. An attacker can
    recompute it; the signature protects against that.
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
"""Files of the seal and its signature, which the seal cannot cover."""


def is_sealed(key: str) -> bool:
    """Return True if the seal covers a key below `runs/RUN/`: everything but the seal, the run's secrets and hidden files."""
    # hidden files are temporary files of the store and journals of running plays
    first = key.split("/", 1)[0]
    return key not in UNSEALED and first != "secrets" and not first.startswith(".")


def close(seal: Seal) -> Seal:
    """Return the seal with its field `digest` filled in."""
    return msgspec.structs.replace(seal, digest=own_digest(seal))


def own_digest(seal: Seal) -> str:
    """Return the digest over all fields of the seal but `digest`."""
    return digest({name: value for name, value in msgspec.to_builtins(seal).items() if name != "digest"})


def decode(data: bytes) -> Seal:
    """Read `seal.json`. Raises msgspec.DecodeError if the data is no seal."""
    return msgspec.json.decode(data, type=Seal)
