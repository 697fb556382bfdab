"""A run: its header in the store, the identity of its target cluster, and who cancelled it."""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

STAGE, OPEN = "run", "open"
"""Task before all stages, and its stage. No stage begins unless this task passes."""

LEASE_SECONDS: Final = 6 * 3600
"""Least time in seconds that the target stays reserved for a run after its last write.

It covers retries and an engine that was away. The plan adds what its tasks and approvals may take between two writes. A sealed run
frees the target at once, a run that died frees it after this time.
"""


class Header(Struct, frozen=True, kw_only=True):
    """Content of `run.json`: plan, cluster and purpose of a run, written when it opens.

    `target_uid` is empty if the spec does not name the cluster; `simulated`: a rehearsal. `left_out` are stages of the spec that
    this run skips although a later stage runs. `operation` and its hosts are given if the run is not the whole bring-up.
    `targetless`: the run is about no cluster.
    """

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
    """Return the store key of a run's header, `run.json`."""
    return f"runs/{run}/run.json"


def plan_key(run: str) -> str:
    """Return the store key of the summary of a run's plan."""
    return f"runs/{run}/plan.json"


def hosts_key(run: str) -> str:
    """Return the store key of a run's expected hosts, a JSON list."""
    return f"runs/{run}/hosts.json"


def target_key(run: str) -> str:
    """Return the store key of the UID of the cluster that this run writes to, once it is known."""
    return f"runs/{run}/target.json"


def decode_header(data: bytes) -> Header:
    """Read `run.json`."""
    return msgspec.json.decode(data, type=Header)


def met_folder(cluster: str) -> str:
    """Return the folder of the host keys that runs about this cluster accepted at a first contact.

    It belongs to no single run: a key that one run accepted holds in the next.
    """
    return f"met/{cluster}"


Read = Callable[[str], bytes | None]
"""A function that reads a key of the store and returns None if it does not exist."""


class TargetIdentity(Struct, frozen=True):
    """Content of `target.json`: the UID of the cluster that a run found, because its spec did not name one."""

    uid: str = ""


def target_uid(run: str, read: Read) -> str:
    """Return the UID of the run's cluster: the one in its header, else the one that it found; empty if unknown."""
    header, target = read(header_key(run)), read(target_key(run))
    named = decode_header(header).target_uid if header else ""
    return named or (msgspec.json.decode(target, type=TargetIdentity).uid if target else "")


def reuse_obstacle(earlier: str, read: Read, *, cluster: str, uid: str, simulated: bool) -> str:
    """Return why a run about this cluster may not reuse the `earlier` run; empty if it may.

    `uid` may be unknown (empty). An earlier run without a known cluster has nothing to reuse, which is no reason to refuse it (see
    `unreached_sentence`).
    """
    data = read(header_key(earlier))
    if data is None:
        return f"there is no run {earlier} to reuse"
    header, known = decode_header(data), target_uid(earlier, read)
    if header.cluster != cluster:
        return f"run {earlier} is about cluster {header.cluster}, this one about {cluster}: nothing of it can be reused"
    if header.simulated != simulated:
        kinds = ("a rehearsal", "a run on real hosts")
        return f"run {earlier} was {kinds[not header.simulated]}, this is {kinds[not simulated]}: nothing of it can be reused"
    # without a known UID nothing is compared here: each task does it once the cluster is known
    if uid and known and uid != known:
        return f"run {earlier} was about the cluster with UID {known}, this one is about {uid}: nothing of it can be reused"
    return ""


def unreached_sentence(earlier: str, read: Read) -> str:
    """Return a sentence that an earlier run never reached its cluster and left nothing to reuse; empty if it did or needed none."""
    header = read(header_key(earlier))
    if target_uid(earlier, read) or (header is not None and decode_header(header).targetless):
        return ""
    return f"run {earlier} never reached its cluster: nothing of it is reused"


PLAN_FILE = "plan.json"
"""Name of the plan's summary in the tasks folder."""


class Cancelled(Struct, frozen=True, kw_only=True):
    """A stored request to cancel a run. `who` is a login name, `how` is `Ctrl-C` or a command, `when` in UTC seconds since 1970."""

    who: str
    how: str
    when: float
    schema: int = 1

    @property
    def sentence(self) -> str:
        """Return the cancellation in words, such as `cancelled by ada (Ctrl-C)`."""
        return f"cancelled by {self.who} ({self.how})"


def cancellation_key(run: str) -> str:
    """Return the store key of a run's cancellation. The first request is kept."""
    return f"runs/{run}/cancelled.json"


def decode_cancellation(data: bytes) -> Cancelled:
    """Read `cancelled.json`."""
    return msgspec.json.decode(data, type=Cancelled)


PLAYBOOK = "identify"
"""Name of the playbook that asks servers which cluster they belong to; it changes nothing."""


class ServerState(StrEnum):
    """State of Kubernetes on a server. `bare`: none is configured; `unreadable`: the identity of the configured one is."""

    BARE = "bare"
    RUNNING = "running"
    UNREADABLE = "unreadable"


class LeaseSpec(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Holder and expiry of a Kubernetes Lease, by which a run holds a cluster."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class ServerIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server's answer to the playbook `identify`: which cluster it belongs to.

    `uid` is that of the namespace kube-system, `kind` is `rke2`, `k3s` or `kubeadm`, `message` is kubectl's error. `lease` is what
    keeps other runs out of the cluster. `kubeconfig`, a secret, gives access to it.
    """

    state: ServerState
    uid: str = ""
    kind: str = ""
    message: str = ""
    lease: LeaseSpec | None = None
    kubeconfig: str = ""
