"""Reads the expected hosts from the fleet folder, shard by shard."""

import gzip
import zlib
from pathlib import Path

import msgspec

from steps.contract import fleet
from steps.contract.canonical import UNREADABLE_JSON
from steps.errors import BadTask


class Fleet:
    """Reader of a run's fleet folder, which has the expected hosts in one file for each shard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def index(self) -> fleet.Index:
        """Return the numbers of hosts and shards. Raises BadTask if the folder has no valid index."""
        try:
            return msgspec.json.decode((self._folder / fleet.INDEX).read_bytes(), type=fleet.Index)
        except (OSError, *UNREADABLE_JSON) as error:
            raise BadTask(f"fleet index {self._folder / fleet.INDEX}: {error}") from error

    def shard(self, number: int) -> tuple[fleet.Host, ...]:
        """Return the hosts of one shard. Raises BadTask if its file is missing or unreadable."""
        path = self._folder / fleet.shard_file(number)
        try:
            return fleet.decode_hosts(gzip.decompress(path.read_bytes()))
        except (OSError, EOFError, zlib.error, *UNREADABLE_JSON) as error:
            raise BadTask(f"fleet shard {path}: {error}") from error

    def hosts(self, select: str = "all") -> tuple[fleet.Host, ...]:
        """Return all hosts that a selector takes, in plan order."""
        hosts = (host for number in range(self.index().shards) for host in self.shard(number))
        return tuple(host for host in hosts if is_selected(host, select))


def is_selected(host: fleet.Host, select: str) -> bool:
    """Return True if a selector takes a host. Raises BadTask for an unknown selector.

    Selectors are `all`, `gpu`, a role or groups (`group-NAME,NAME`). The prefix `touched-` takes only hosts that plays may change.
    """
    if select.startswith(fleet.TOUCHED):
        return not host.untouched and is_selected(host, select.removeprefix(fleet.TOUCHED))
    if select == "all":
        return True
    if groups := fleet.selected_groups(select):
        return host.group in groups
    if select == "gpu":
        return host.gpus > 0
    if select in ("server", "agent"):
        return host.role == select
    raise BadTask(f"{select!r} selects no hosts: use all, gpu, server, agent or group-NAME,NAME")
