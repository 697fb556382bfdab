"""Whose key is believed where a spec allows a first contact: what was met once is kept, and from then on it is that key or none.

OpenSSH's own `accept-new` is not enough for that: it takes a key of another type as new, also from a host whose key it has.
"""

from pathlib import Path

from msgspec import Struct

from steps.contract import delivery
from steps.contract.play import Jump, PlayHost

SSH_PORT = 22


class Met(Struct, frozen=True):
    """Where keys of first contacts are kept. `folder` has a file for each place, so that plays which run side by side, on whichever
    machine, never write one file for two hosts. `known` is the text of the file that the spec names: who stands there is known by
    that alone. `files` are the paths of that file, if there is one."""

    folder: Path
    known: str = ""
    files: tuple[str, ...] = ()

    def lines(self, access: PlayHost | Jump) -> list[str]:
        """What SSH is told of the keys of this host: it writes a new one to the first file."""
        named = f"[{access.address}]:{access.port}" if access.port != SSH_PORT else access.address
        named = named.lower()
        if any(key.host == named and not key.marker for key in delivery.host_keys(self.known, named)):
            return _lines(self.files, "yes")
        kept = self.folder / f"{access.address.lower()}_{access.port}"
        return _lines((str(kept), *self.files), "yes" if _has_content(kept) else "accept-new")


def _lines(files: tuple[str, ...], check: str) -> list[str]:
    return [f"  UserKnownHostsFile {' '.join(files)}", f"  StrictHostKeyChecking {check}"]


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
