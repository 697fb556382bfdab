"""The fleet: expected hosts in shards, as the files under /bringup/fleet hold them."""

import msgspec
from msgspec import Struct

SHARD_SIZE = 50
"""Most hosts in one shard (design §4): one pod's share of a play."""

INDEX = "index.json"

TOUCHED = "touched-"
"""Before a selector (`touched-agent`): of those hosts the ones that the run's plays may change."""
GROUP = "group-"
"""Before the name of a host group: a selector of its hosts."""


class Host(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One expected host. `name` is also its Kubernetes node name; `address` is what SSH connects to. `untouched`: the run is about
    other hosts, and changes nothing on this one over SSH."""

    name: str
    address: str
    group: str
    role: str
    gpus: int = 0
    rack: str = ""
    variables: dict[str, str] = {}
    untouched: bool = False


class Index(Struct, frozen=True, kw_only=True):
    """`index.json`: how many hosts and shards there are, and the plan they belong to."""

    plan: str
    hosts: int
    shards: int
    schema: int = 1


def shard_file(number: int) -> str:
    """Name of the file with one shard's hosts (gzip of a JSON list): `0003.json.gz`."""
    return f"{number:04d}.json.gz"


def decode_hosts(data: bytes) -> tuple[Host, ...]:
    """The hosts of one shard file, already unzipped."""
    return msgspec.json.decode(data, type=tuple[Host, ...])
