"""The seal of a run: the digest of every file that belongs to it, which shows any changed byte."""

import re

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
SIGNED_WITH = " and signed with "
"""Words with which the task `seal` says in its log that it signed the seal, before the name of the key."""
UNSEALED = (FILE, SIGNATURE)
"""Files of the seal and its signature, which the seal cannot cover."""

_UNFINISHED = re.compile(r"\.[^/]+\.[a-z0-9_]{8}|\.(?:playing|new)-[a-z0-9_]{8}|\.nfs[0-9a-f]+", re.DOTALL)


def is_sealed(key: str) -> bool:
    """Return True if the seal covers a key below `runs/RUN/`: everything but the seal, the run's secrets and hidden files."""
    return key not in UNSEALED and not is_secret(key) and not is_hidden(key)


def is_secret(key: str) -> bool:
    """Return True for the folder of the run's secrets and everything in it, which no seal covers and nobody hands out."""
    return key.split("/", 1)[0] == "secrets"


def is_hidden(key: str) -> bool:
    """Return True if a part of a key begins with a dot: such files are unfinished writes and journals of running plays."""
    return any(part.startswith(".") for part in key.split("/"))


def is_unfinished(key: str) -> bool:
    """Return True for the temporary file of a write or the journal of a play whose process was killed: no evidence, no tampering.

    `.nfs…` is a file that was deleted on NFS while a process still had it open.
    """
    return _UNFINISHED.fullmatch(key.rsplit("/", 1)[-1]) is not None


def close(seal: Seal) -> Seal:
    """Return the seal with its field `digest` filled in."""
    return msgspec.structs.replace(seal, digest=own_digest(seal))


def own_digest(seal: Seal) -> str:
    """Return the digest over all fields of the seal but `digest`."""
    return digest({name: value for name, value in msgspec.to_builtins(seal).items() if name != "digest"})


def decode(data: bytes) -> Seal:
    """Read `seal.json`. Raises msgspec.DecodeError if the data is no seal."""
    return msgspec.json.decode(data, type=Seal)
