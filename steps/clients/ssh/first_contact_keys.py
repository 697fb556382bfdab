"""Host keys of first contacts, for specs that allow them: a host's first key is kept, and only that key is accepted afterwards.

OpenSSH's own `accept-new` is not enough: it accepts a key of another type as new, even from a host whose key it has.
"""

from pathlib import Path

from msgspec import Struct

from steps.contract import delivery
from steps.contract.host_play import Jump, PlayHost

SSH_PORT = 22


class FirstContactKeys(Struct, frozen=True):
    """Store folder of the host keys that were accepted at first contacts.

    `folder` has a file for each address and port, so that plays that run at the same time, on any machine, never write one file for
    two hosts. `known` is the text of the spec's file, which alone counts for the hosts in it; `files` are the paths of that file,
    if there is one.
    """

    folder: Path
    known: str = ""
    files: tuple[str, ...] = ()

    def lines(self, access: PlayHost | Jump) -> list[str]:
        """Return the SSH options about the keys of this host. SSH writes a new key to the first file."""
        address = access.address.lower()
        named = f"[{address}]:{access.port}" if access.port != SSH_PORT else address
        # the spec's file alone decides about a host that it names
        if any(key.host == named and not key.marker for key in delivery.host_keys(self.known, named)):
            return _lines(self.files, "yes")
        kept_keys = self.folder / f"{address}_{access.port}"
        is_known = kept_keys.is_file() and kept_keys.stat().st_size > 0
        return _lines((str(kept_keys), *self.files), "yes" if is_known else "accept-new")


def _lines(files: tuple[str, ...], check: str) -> list[str]:
    return [f"  UserKnownHostsFile {' '.join(files)}", f"  StrictHostKeyChecking {check}"]
