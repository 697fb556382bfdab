"""The fleet: expected hosts in shards, as files under /bringup/fleet."""

import msgspec
from msgspec import Struct

SHARD_SIZE = 50
"""Largest number of hosts in a shard, which is one pod's share of a play."""

INDEX = "index.json"

TOUCHED = "touched-"
"""Prefix of a selector (`touched-agent`) that takes only hosts that the run's plays may change."""
GROUP = "group-"
"""Prefix of the names of host groups, with commas between them, that makes a selector of their hosts (`group-a,b`)."""


LEAF = "leaf"
"""Variable of a host with the name of its leaf switch."""


def selected_groups(select: str) -> tuple[str, ...]:
    """Return the names of the host groups in a selector of groups; empty for any other selector."""
    return tuple(select.removeprefix(GROUP).split(",")) if select.startswith(GROUP) else ()


class Host(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An expected host. `name` is also its Kubernetes node name; `address` is what SSH connects to.

    `untouched`: the run is about other hosts and changes nothing on this one over SSH.
    """

    name: str
    address: str
    group: str
    role: str
    gpus: int = 0
    rack: str = ""
    variables: dict[str, str] = {}
    untouched: bool = False


class Index(Struct, frozen=True, kw_only=True):
    """Content of `index.json` in the fleet folder: numbers of hosts and shards, and the digest of their plan."""

    plan: str
    hosts: int
    shards: int
    schema: int = 1


def shard_file(number: int) -> str:
    """Return the name of the file with one shard's hosts (gzip of a JSON list), such as `0003.json.gz`."""
    return f"{number:04d}.json.gz"


def decode_hosts(data: bytes) -> tuple[Host, ...]:
    """Return the hosts of one shard file, already unzipped."""
    return msgspec.json.decode(data, type=tuple[Host, ...])
