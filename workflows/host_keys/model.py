"""A host key, what known_hosts says of it, and a host to be asked."""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from enum import StrEnum

from steps.contract.play import Jump, PlayHost


class State(StrEnum):
    """What a known_hosts file says of the key that a host shows. `certified`: a certificate of a CA that the file trusts there."""

    NEW = "new"
    SAME = "same"
    CHANGED = "CHANGED"
    REVOKED = "REVOKED"
    CERTIFIED = "certified"
    SILENT = "no answer"


@dataclass(frozen=True, kw_only=True)
class Key:
    """A public host key: `kind` as in known_hosts (`ssh-ed25519`), `blob` in base64."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """`SHA256:…` as `ssh` and `ssh-keygen -l` print it."""
        try:
            raw = base64.b64decode(self.blob, validate=True)
        except binascii.Error:
            return "not base64"
        return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One line of what was found: a key of a host, or why there is none. `place` is the host's name in known_hosts."""

    host: str
    place: str
    state: State
    key: Key | None = None
    said: str = ""


def place(access: PlayHost | Jump) -> str:
    """A host's name in known_hosts: its address, in brackets with the port where that is not 22."""
    return access.address if access.port == 22 else f"[{access.address}]:{access.port}"
