"""Host keys, and their states according to a known_hosts file."""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from enum import StrEnum

from steps.contract.play import Jump, PlayHost


class KeyState(StrEnum):
    """State of a scanned key according to known_hosts. `certified`: the key has a certificate of a CA that the file trusts."""

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
        """Fingerprint `SHA256:…` as `ssh` and `ssh-keygen -l` print it."""
        try:
            raw = base64.b64decode(self.blob, validate=True)
        except binascii.Error:
            return "not base64"
        return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


@dataclass(frozen=True, kw_only=True)
class ScannedKey:
    """A scanned key of a host, or the reason why there is none. `place` is the name of the host in known_hosts."""

    host: str
    place: str
    state: KeyState
    key: Key | None = None
    said: str = ""


def place(access: PlayHost | Jump) -> str:
    """Return the name of a host in known_hosts: its address, in brackets with the port unless that is 22."""
    return access.address if access.port == 22 else f"[{access.address}]:{access.port}"
