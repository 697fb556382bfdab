"""Identity of a server: the cluster it already belongs to, as the playbook `identify` reads it on the machine itself."""

from enum import StrEnum

from msgspec import Struct

PLAYBOOK = "identify"
"""Name of the playbook; it changes nothing."""


class State(StrEnum):
    """State of Kubernetes on a server. `bare`: none is configured; `unreadable`: one is configured, but its identity cannot be
    read.
    """

    BARE = "bare"
    RUNNING = "running"
    UNREADABLE = "unreadable"


class LeaseSpec(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Holder and expiry of the lease of a cluster, a Kubernetes `LeaseSpec`."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class ServerIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity of one server.

    `uid` is that of the namespace kube-system, `kind` is `rke2`, `k3s` or `kubeadm`, `message` is kubectl's error. `lease` is what
    keeps other runs out of the cluster. `kubeconfig`, a secret, gives access to it.
    """

    state: State
    uid: str = ""
    kind: str = ""
    message: str = ""
    lease: LeaseSpec | None = None
    kubeconfig: str = ""
