"""Which cluster a server already belongs to, as the playbook `identify` reads it on the machine itself."""

from enum import StrEnum

from msgspec import Struct

PLAYBOOK = "identify"
"""Name of the playbook; it changes nothing."""


class State(StrEnum):
    """`bare`: no Kubernetes is configured there; `unreadable`: one is, but it does not say which."""

    BARE = "bare"
    RUNNING = "running"
    UNREADABLE = "unreadable"


class LeaseSpec(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Who holds the lease of a cluster and until when."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class ServerIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server. `uid` is that of the namespace kube-system; `kind` is `rke2`, `k3s` or `kubeadm`, `message` kubectl's error.
    `lease` is what keeps other runs out of its cluster, and `kubeconfig`, a secret, leads there."""

    state: State
    uid: str = ""
    kind: str = ""
    message: str = ""
    lease: LeaseSpec | None = None
    kubeconfig: str = ""
