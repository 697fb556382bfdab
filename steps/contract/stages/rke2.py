"""Stage rke2: what servers, agents, the control plane and the nodes show, and what the gates expect of them."""

import re
from typing import NamedTuple

from msgspec import Struct

from steps.contract.charts import Workload
from steps.contract.checks import CheckPod
from steps.contract.play import Played
from steps.contract.quarantine import Note

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


class Etcd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The etcd member of a server, as it tells of itself on 127.0.0.1:2381 (RKE2 serves metrics and health there always).

    `members` are itself and the peers that it is connected to, `known` those that are members of the cluster, connected or not
    (etcd_network_known_peers counts itself; None where it does not tell). `fsync_p99` is the 99th percentile of the `fsyncs` of its
    write-ahead log since the process started, in seconds (None: none yet); `leader_changes` are those that it saw since then.
    `started` and `read` are seconds since the epoch by the host's clock. What has no default would read as good where it is not
    told.
    """

    leader_changes: int
    healthy: bool = False
    reason: str = ""
    has_leader: bool = False
    learner: bool | None = None
    members: int = 0
    known: int | None = None
    fsyncs: int = 0
    fsync_p99: float | None = None
    started: float = 0.0
    read: float = 0.0


class EtcdLimits(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the gate rke2/servers wants of every server's etcd.

    `fsync_p99` in seconds: etcd's FAQ advises less than 10 ms (etcd.io/docs/v3.5/faq, "What does the etcd warning … mean"). At
    least `fsyncs` must have been measured for that to mean anything. `leader_changes` are those that a quarter of an hour may see,
    on average since the start: etcd's own alert etcdHighNumberOfLeaderChanges rings at 4.
    """

    fsync_p99: float = 0.010
    fsyncs: int = 100
    leader_changes: int = 3


class HostFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a play of rke2 read on a host at its end.

    `service` is the unit's name, `state` its ActiveState, `version` the full string of the installed binary.
    `ready`: a server's own /readyz on port 6443, or an agent's kubelet /healthz, answered ok. `started` is seconds since the epoch,
    `up_seconds` how long ago that was by the host's own clock, `restarts` NRestarts, which has no default: not told would read as
    none. `waiting_for` names what is not ready, `rolled_back` the release that a failed upgrade went back to, `kept` the one that
    an upgrade took the place of, `restored` the snapshot that a rollback set etcd back to. `aside` are files of the site that ours
    took the places of, by where they are kept. A server also tells its etcd (`member`) and `secrets_encryption`: Enabled, Disabled,
    or nothing.
    """

    service: str
    restarts: int
    version: str = ""
    state: str = ""
    enabled: bool = False
    ready: bool = False
    node_ip: str = ""
    started: float = 0.0
    up_seconds: float = 0.0
    waiting_for: str = ""
    rolled_back: str = ""
    kept: str = ""
    restored: str = ""
    aside: tuple[str, ...] = ()
    secrets_encryption: str = ""
    member: Etcd | None = None


class HostObservation(Played, frozen=True, kw_only=True, omit_defaults=True):
    """One host after a play: how the play ended there, and what it showed."""

    facts: HostFacts | None = None


class PlayObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All hosts that a play returned."""

    nodes: tuple[HostObservation, ...]


class PlayExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the gates rke2/servers and rke2/agents want of each host in `nodes`; `version` is the wanted full string. `etcd` is
    given for servers: each must be connected to all others of them.

    More than so many `restarts` count until the service has run for `calm_seconds` since the last: systemd counts them from the
    last start by hand or boot on, which may be a year ago.
    """

    version: str
    service: str
    nodes: tuple[str, ...] = ()
    restarts: int = 3
    calm_seconds: float = 600.0
    etcd: EtcdLimits | None = None


class StaticPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A static pod of a server: whether it is ready, how often its container started again, and when it last did (seconds since the
    epoch, 0 where not told)."""

    ready: bool
    restarts: int
    started: float = 0.0


class Server(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server as the API shows it: `ready` is its condition Ready, `voter` its condition EtcdIsVoter (None: not told).

    `etcd` and `apiserver` are the static pods of that name on this server; None where there is no such pod.
    """

    name: str
    ready: bool
    voter: bool | None = None
    etcd: StaticPod | None = None
    apiserver: StaticPod | None = None


class InstallJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Job `helm-install-rke2-…` that installs a part of RKE2 itself."""

    name: str
    complete: bool = False
    failed: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The control plane. `readyz` are the checks of /readyz that are not ok, None where the API server did not say.

    `stray_etcd` are etcd pods of nodes that nobody expects to be servers. `now` is the target's clock in seconds since the epoch.
    """

    now: float
    readyz: tuple[str, ...] | None = None
    servers: tuple[Server, ...] = ()
    stray_etcd: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()
    jobs: tuple[InstallJob, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`nodes` are the servers. `workloads` are `KIND NAME` that must be settled; a DaemonSet may be short of `spare` nodes, which
    is what the quorum forgives.

    etcd and API servers must have run for `settled_seconds` since they last started; those that started again `storm` times or
    more, for `calm_seconds`: a kubelet forgets a container's back-off after 10 minutes without trouble.
    """

    nodes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    spare: int = 0
    settled_seconds: float = 30.0
    storm: int = 3
    calm_seconds: float = 600.0


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registered node. Times are seconds since the epoch, 0 where not told.

    `ready` is the status of condition Ready with `reason` and `message`; `seen` is its newest sign of life (lease or heartbeat),
    `since` when Ready last changed. `pressure` are conditions that are True and must not be. `taints` are `key=value:effect`.
    `labels` are those that the expectation asks about. `network` is the network plugin's pod on this node, None where there is
    none. `quarantine` says which run has cordoned it and why, None where none of ours has.
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
    quarantine: Note | None = None
    taints: tuple[str, ...] = ()
    pressure: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    network: StaticPod | None = None


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every registered node, and the target's clock in seconds since the epoch."""

    now: float
    nodes: tuple[Node, ...] = ()


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the spec gives the nodes of one group at registration. `hosts` are their names as ranges (`gpu[001-016]`); empty where
    that text would be too long for a task: then the label `bringup/group` says which nodes are meant."""

    hosts: str = ""
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What every node must show. `groups` are what the spec gives nodes at registration, by the value of `group_label`,
    `host_labels` the labels of single hosts, which win. `network` names the network plugin whose pod must be ready on every node
    (empty: none is looked for). `own_taints` are keys of taints that the platform puts on nodes by itself, and takes away again.

    A node must have shown life within `alive_seconds` (the kubelet reports every 300 s when nothing changes) and been Ready for
    `settled_seconds`, and its network pod have run for as long, so that a node which flaps does not pass by luck; a network pod
    that started again `storm` times or more for `calm_seconds`.
    """

    version: str
    nodes: tuple[str, ...] = ()
    groups: dict[str, Group] = {}
    group_label: str = "bringup/group"
    host_labels: dict[str, dict[str, str]] = {}
    network: str = ""
    own_taints: tuple[str, ...] = ()
    storm: int = 3
    calm_seconds: float = 600.0
    alive_seconds: float = 420.0
    settled_seconds: float = 10.0


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pods of check `dns`, and the nodes that run a pod of the ingress controller (None: nobody asked).

    Report: node; resolved and service (addresses of the API service by DNS and by Kubernetes itself); vip and named (the nodes of
    the pods that answered behind the check's own Service, asked by its address and by its name); next (index of the pod that it
    asked), peer (that pod's node, as it answered), reached, large (whether a file came whole from there, in packets of full size);
    before (the node of the pod before it, as that answered); ingress and own (the node of the pod that answered by way of an
    ingress controller, and whether that was this node's controller); error.
    """

    pods: tuple[CheckPod, ...] = ()
    ingress: tuple[str, ...] | None = None


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Each of `nodes` must have a pod that resolved the API's service, reached a Service by its address and by its name, and a pod
    on another node, where there is one. With `ingress` also by way of the ingress controller: its own node's, where one runs
    there."""

    nodes: tuple[str, ...] = ()
    ingress: bool = False
