"""Stage rke2: what servers, agents, the control plane and the nodes show, and what the gates expect of them."""

import re
from typing import NamedTuple

from msgspec import Struct

from steps.contract.charts import Workload
from steps.contract.checks import CheckPod
from steps.contract.play import Played

_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)(\d+))?\+rke2r(\d+)")


class Version(NamedTuple):
    """An RKE2 version in the order of its releases; `pre` sorts alpha < beta < rc < none, `revision` is N of `+rke2rN`."""

    major: int
    minor: int
    patch: int
    pre: tuple[int, int]
    revision: int


def parse_version(text: str) -> Version | None:
    """`v1.35.7+rke2r1` as numbers; None where it is no RKE2 version. Semver ignores `+rke2rN`, RKE2 does not (gpu_stack §5)."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    pre = (("alpha", "beta", "rc").index(found[4]), int(found[5])) if found[4] else (3, 0)
    return Version(int(found[1]), int(found[2]), int(found[3]), pre, int(found[6]))


class HostFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a play of rke2 read on a host at its end.

    `service` is the unit's name, `state` its ActiveState, `version` the full string of the installed binary.
    `ready`: a server's own /readyz on port 6443, or an agent's kubelet /healthz, answered ok. `started` is seconds since the epoch,
    `restarts` NRestarts, which has no default: not told would read as none.
    """

    service: str
    restarts: int
    version: str = ""
    state: str = ""
    enabled: bool = False
    ready: bool = False
    node_ip: str = ""
    started: float = 0.0


class HostObservation(Played, frozen=True, kw_only=True, omit_defaults=True):
    """One host after a play: how the play ended there, and what it showed."""

    facts: HostFacts | None = None


class PlayObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All hosts that a play returned."""

    nodes: tuple[HostObservation, ...]


class PlayExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the gates rke2/servers and rke2/agents want of each host in `nodes`; `version` is the wanted full string."""

    version: str
    service: str
    nodes: tuple[str, ...] = ()
    restarts: int = 3


class Server(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server as the API shows it: `ready` is its condition Ready, `voter` its condition EtcdIsVoter (None: not told).

    `etcd` and `apiserver` say whether the static pod of that name on this server is ready; None where there is no such pod.
    """

    name: str
    ready: bool
    voter: bool | None = None
    etcd: bool | None = None
    apiserver: bool | None = None


class InstallJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Job `helm-install-rke2-…` that installs a part of RKE2 itself."""

    name: str
    complete: bool = False
    failed: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The control plane. `readyz` are the checks of /readyz that are not ok, None where the API server did not say.

    `stray_etcd` are etcd pods of nodes that nobody expects to be servers.
    """

    readyz: tuple[str, ...] | None = None
    servers: tuple[Server, ...] = ()
    stray_etcd: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()
    jobs: tuple[InstallJob, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`nodes` are the servers. `workloads` are `KIND NAMESPACE/NAME` that must be settled; a DaemonSet may be short of `spare`
    nodes, which is what the quorum forgives."""

    nodes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    spare: int = 0


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registered node. Times are seconds since the epoch, 0 where not told.

    `ready` is the status of condition Ready with `reason` and `message`; `seen` is its newest sign of life (lease or heartbeat),
    `since` when Ready last changed. `pressure` are conditions that are True and must not be. `taints` are `key=value:effect`.
    """

    name: str
    ready: str = "Unknown"
    reason: str = ""
    message: str = ""
    version: str = ""
    address: str = ""
    seen: float = 0.0
    since: float = 0.0
    cordoned: bool = False
    taints: tuple[str, ...] = ()
    pressure: tuple[str, ...] = ()


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every registered node, and the target's clock in seconds since the epoch."""

    now: float
    nodes: tuple[Node, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`taints` are those that the spec puts on nodes. A node must have shown life within `alive_seconds` (the kubelet reports every
    300 s when nothing changes) and been Ready for `settled_seconds`, so that a node which flaps does not pass by luck."""

    version: str
    nodes: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    alive_seconds: float = 420.0
    settled_seconds: float = 10.0


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pods of check `dns`. Report: node; resolved and service (addresses of the API service by DNS and by Kubernetes itself);
    next (index of the pod that it asked), peer (that pod's node, as it answered), reached; error."""

    pods: tuple[CheckPod, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Each of `nodes` must have a pod that resolved the API's service and reached a pod on another node, where there is one."""

    nodes: tuple[str, ...] = ()
