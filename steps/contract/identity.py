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


class ServerIdentity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One server. `uid` is that of the namespace kube-system; `kind` is `rke2`, `k3s` or `kubeadm`, `message` kubectl's error."""

    state: State
    uid: str = ""
    kind: str = ""
    message: str = ""
