"""A run: its header in the store and the identity of its target cluster."""

import msgspec
from msgspec import Struct


class Header(Struct, frozen=True, kw_only=True):
    """`run.json`: what this run is about. `target_uid` is empty until the spec knows the cluster."""

    run: str
    engine: str
    plan: str
    cluster: str
    owner: str
    revision: str
    target_uid: str = ""
    schema: int = 1


def header_key(run: str) -> str:
    """Where the header lies."""
    return f"runs/{run}/run.json"


def target_key(run: str) -> str:
    """Where the UID of the cluster that this run writes to lies, once it is known."""
    return f"runs/{run}/target.json"


def decode_header(data: bytes) -> Header:
    """Read `run.json`."""
    return msgspec.json.decode(data, type=Header)
