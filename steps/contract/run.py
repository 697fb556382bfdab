"""A run: its header in the store and the identity of its target cluster."""

import msgspec
from msgspec import Struct


class Header(Struct, frozen=True, kw_only=True):
    """`run.json`: what this run is about. `target_uid` is empty until the spec knows the cluster; `simulated` is a rehearsal."""

    run: str
    engine: str
    plan: str
    cluster: str
    owner: str
    revision: str
    target_uid: str = ""
    simulated: bool = False
    schema: int = 1


def header_key(run: str) -> str:
    """Where the header lies."""
    return f"runs/{run}/run.json"


def plan_key(run: str) -> str:
    """Where the summary of the plan lies."""
    return f"runs/{run}/plan.json"


def hosts_key(run: str) -> str:
    """Where the expected hosts lie, as a JSON list."""
    return f"runs/{run}/hosts.json"


def target_key(run: str) -> str:
    """Where the UID of the cluster that this run writes to lies, once it is known."""
    return f"runs/{run}/target.json"


def decode_header(data: bytes) -> Header:
    """Read `run.json`."""
    return msgspec.json.decode(data, type=Header)


PLAN_FILE = "plan.json"
"""Name of the plan's summary in the tasks folder."""
