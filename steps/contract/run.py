"""A run: its header in the store and the identity of its target cluster."""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

STAGE, OPEN = "run", "open"
"""Stage and name of the task before all stages; no stage begins where it did not do."""

LEASE_SECONDS: Final = 6 * 3600
"""Least time that the target stays reserved for a run after its last write: covers retries and an engine that was away. The plan
adds what its tasks and approvals may take between two writes. A run that died frees the target after that, a sealed one at once."""


class Header(Struct, frozen=True, kw_only=True):
    """`run.json`: what this run is about. `target_uid` is empty where the spec does not know the cluster; `simulated` is a
    rehearsal. `left_out` are stages of the spec that this run does not have, though a later one of the spec runs in it.
    `operation` is what the run was for, with its hosts, where that was not the whole bring-up. `targetless`:
    it is about no cluster."""

    run: str
    engine: str
    plan: str
    cluster: str
    owner: str
    revision: str
    target_uid: str = ""
    simulated: bool = False
    lease_seconds: int = LEASE_SECONDS
    left_out: tuple[str, ...] = ()
    operation: str = ""
    targetless: bool = False
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


def met_folder(cluster: str) -> str:
    """Folder of the store with the host keys that runs about this cluster met at a first contact: no run's own, since what one run
    met holds in the next."""
    return f"met/{cluster}"


Read = Callable[[str], bytes | None]
"""Reads a key of the store; None where nobody wrote it."""


class Target(Struct, frozen=True):
    """`target.json`: the identity of the cluster that a run found."""

    uid: str = ""


def target_uid(run: str, read: Read) -> str:
    """UID of the cluster that a run is about, from its spec or as it found it; empty where it is not known."""
    header, found = read(header_key(run)), read(target_key(run))
    named = decode_header(header).target_uid if header else ""
    return named or (msgspec.json.decode(found, type=Target).uid if found else "")


def why_not_reused(earlier: str, read: Read, *, cluster: str, uid: str, simulated: bool) -> str:
    """Why a run about this cluster may not reuse an earlier one, empty when it may. `uid` may not be known yet; an earlier run that
    knows none has nothing to reuse, which is no reason to refuse it (`unreached`)."""
    data = read(header_key(earlier))
    if data is None:
        return f"there is no run {earlier} to reuse"
    header, known = decode_header(data), target_uid(earlier, read)
    if header.cluster != cluster:
        return f"run {earlier} is about cluster {header.cluster}, this one about {cluster}: nothing of it can be reused"
    if header.simulated != simulated:
        kinds = ("a rehearsal", "a run on real hosts")
        return f"run {earlier} was {kinds[not header.simulated]}, this is {kinds[not simulated]}: nothing of it can be reused"
    if uid and known and uid != known:
        return f"run {earlier} was about the cluster with UID {known}, this one is about {uid}: nothing of it can be reused"
    return ""


def unreached(earlier: str, read: Read) -> str:
    """Says of an earlier run that never reached its cluster that it left nothing to reuse; empty for one that did, or had none."""
    header = read(header_key(earlier))
    if target_uid(earlier, read) or (header is not None and decode_header(header).targetless):
        return ""
    return f"run {earlier} never reached its cluster: nothing of it is reused"


PLAN_FILE = "plan.json"
"""Name of the plan's summary in the tasks folder."""
