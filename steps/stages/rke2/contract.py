"""Types of stage rke2: observations of hosts, control plane and nodes, and the expectations of its gates."""

import re
from typing import NamedTuple

from msgspec import Struct

from steps.contract.host_play import Played
from steps.contract.objects.charts import Workload
from steps.contract.objects.checks import CheckPod
from steps.contract.runs.quarantine import CordonNote

_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)(\d+))?\+rke2r(\d+)")


class Version(NamedTuple):
    """An RKE2 version that sorts in release order. `pre` sorts alpha < beta < rc < none; `revision` is N of `+rke2rN`."""

    major: int
    minor: int
    patch: int
    pre: tuple[int, int]
    revision: int


def parse_version(text: str) -> Version | None:
    """Return `v1.35.7+rke2r1` as numbers; None if the text is no RKE2 version.

    Semantic versioning ignores the part after `+`, but `+rke2r1` and `+rke2r2` are different RKE2 releases, so it is compared too.
    """
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    pre = (("alpha", "beta", "rc").index(match[4]), int(match[5])) if match[4] else (3, 0)
    return Version(int(match[1]), int(match[2]), int(match[3]), pre, int(match[6]))


class Etcd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The etcd member of a server, from its metrics and health on 127.0.0.1:2381, which RKE2 always serves.

    `members` counts the member itself and the peers that it is connected to. `known` counts all members of the cluster, connected
    or not (etcd_network_known_peers counts itself; None if it is absent). `fsync_p99` is the 99th percentile of the `fsyncs` of its
    write-ahead log since the process started, in seconds; None if there were none. `leader_changes` are those seen since then.
    `started` and `read` are seconds since the epoch by the host's clock. Fields without a default are those whose absence would
    read as good.
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
    """Limits of the gate rke2/servers for every server's etcd.

    `fsync_p99` in seconds: etcd's FAQ advises less than 10 ms (etcd.io/docs/v3.5/faq, "What does the etcd warning … mean"). At
    least `fsyncs` must have been measured before it is compared. `leader_changes` is the number allowed in a quarter of an hour, on
    average since the start: etcd's own alert etcdHighNumberOfLeaderChanges fires at 4.
    """

    fsync_p99: float = 0.010
    fsyncs: int = 100
    leader_changes: int = 3


class Rke2HostFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a host that a play of rke2 reads at its end.

    `service` is the unit's name, `state` its ActiveState, `version` the full string of the installed binary. `ready`: the server's
    own /readyz on port 6443, or the agent's kubelet /healthz, answered ok. `started` is seconds since the epoch, `up_seconds` the
    age of that start by the host's own clock. `restarts` is NRestarts; it has no default because an absent value would read as
    none. `waiting_for` names the parts that are not ready. `rolled_back` is the release that a failed upgrade went back to, `kept`
    the release that an upgrade replaced, `restored` the snapshot that a rollback restored etcd from. `aside` are the paths under
    which replaced files of the site are kept. A server also reports its etcd (`member`) and `secrets_encryption`: Enabled,
    Disabled, or empty if unknown.
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


class Rke2Host(Played, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of one host after a play of rke2: how the play ended there, and the host's facts."""

    facts: Rke2HostFacts | None = None


class PlayObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gates rke2/servers and rke2/agents: one entry for each host of the play."""

    nodes: tuple[Rke2Host, ...]


class PlayExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gates rke2/servers and rke2/agents for each host in `nodes`; `version` is the full version string.

    `etcd` is set for servers: each must be connected to all others. More than `restarts` restarts count as a failure until the
    service has run for `calm_seconds` since the last one. systemd counts restarts since the last manual start or boot, which may be
    a year ago.
    """

    version: str
    service: str
    nodes: tuple[str, ...] = ()
    restarts: int = 3
    calm_seconds: float = 600.0
    etcd: EtcdLimits | None = None


class StaticPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A static pod of a server: readiness, restarts of its container, and last start in seconds since the epoch (0: unknown)."""

    ready: bool
    restarts: int
    started: float = 0.0


class Server(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server as the API shows it. `ready` is its condition Ready, `voter` its condition EtcdIsVoter (None if absent).

    `etcd` and `apiserver` are the static pods of that name on this server; None if there is no such pod.
    """

    name: str
    ready: bool
    voter: bool | None = None
    etcd: StaticPod | None = None
    apiserver: StaticPod | None = None


class Rke2InstallJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Job `helm-install-rke2-…` by which RKE2 installs one of its own charts, such as DNS or the network plugin."""

    name: str
    complete: bool = False
    failed: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate rke2/control: the state of the control plane.

    `readyz` are the checks of /readyz that are not ok; None if the API server gave no answer. `stray_etcd` are etcd pods of nodes
    that are not expected to be servers. `now` is the target's clock in seconds since the epoch.
    """

    now: float
    readyz: tuple[str, ...] | None = None
    servers: tuple[Server, ...] = ()
    stray_etcd: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] = ()
    jobs: tuple[Rke2InstallJob, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate rke2/control. `nodes` are the servers, `workloads` are `KIND NAME` that must be settled.

    A DaemonSet may be short of `spare` nodes, the number that the quorum allows. etcd and API servers must have run for
    `settled_seconds` since their last start. Those with `storm` or more restarts must have run for `calm_seconds`: a kubelet resets
    a container's back-off after 10 minutes without trouble.
    """

    nodes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    spare: int = 0
    settled_seconds: float = 30.0
    storm: int = 3
    calm_seconds: float = 600.0


class RegisteredNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that is registered in the cluster. Times are seconds since the epoch, 0 if unknown.

    `ready` is the status of condition Ready with `reason` and `message`. `seen` is its newest sign of life (lease or heartbeat),
    `since` the last transition of Ready. `pressure` are conditions that are True and must not be. `taints` are `key=value:effect`.
    `labels` are those that the expectation names. `network` is the network plugin's pod on this node; None if there is none.
    `quarantine` is the note of the run that cordoned the node; None if no run did.
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
    quarantine: CordonNote | None = None
    taints: tuple[str, ...] = ()
    pressure: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    network: StaticPod | None = None


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate rke2/nodes: every registered node, and the target's clock in seconds since the epoch."""

    now: float
    nodes: tuple[RegisteredNode, ...] = ()


class RegistrationGroup(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Labels and taints that the spec gives the nodes of one group at registration.

    `hosts` are their names as ranges (`gpu[001-016]`). It is empty if that text is too long for a task; then the label
    `bringup/group` of each node names its group.
    """

    hosts: str = ""
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate rke2/nodes for every node.

    `groups` are the spec's groups, by the value of `group_label`; `host_labels` are labels of single hosts, which win. `network`
    names the network plugin whose pod must be ready on every node; empty means that none is checked. `own_taints` are keys of
    taints that the platform itself adds and removes.

    A node must have shown life within `alive_seconds` (a kubelet reports every 300 s when nothing changes) and been Ready for
    `settled_seconds`, so that a flapping node does not pass by luck. Its network pod must have run for the same time, or for
    `calm_seconds` after `storm` or more restarts.
    """

    version: str
    nodes: tuple[str, ...] = ()
    groups: dict[str, RegistrationGroup] = {}
    group_label: str = "bringup/group"
    host_labels: dict[str, dict[str, str]] = {}
    network: str = ""
    own_taints: tuple[str, ...] = ()
    storm: int = 3
    calm_seconds: float = 600.0
    alive_seconds: float = 420.0
    settled_seconds: float = 10.0


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate rke2/functional: the pods of check `dns`, and the nodes that run a pod of the ingress controller.

    The nodes are None if ingress is not checked.

    Keys of a pod's report: node; resolved and service (addresses of the API service by DNS and from Kubernetes); vip and named
    (nodes of the pods that answered behind the check's Service, asked by address and by name); next (index of the pod that it
    asked), peer (that pod's node), reached, large (True if a file came whole from there in packets of full size); before (node of
    the previous pod, as that pod answered); outside (outside name → its address, empty without an answer); caught (the first
    search domain of the node below which an outside name has an address too); ingress and own (node of the pod that answered
    through an ingress controller, and whether this node's own controller was used); error.
    """

    pods: tuple[CheckPod, ...] = ()
    ingress: tuple[str, ...] | None = None


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate rke2/functional for each of `nodes`.

    A pod must have resolved the API's service and each of the names `outside`, reached a Service by address and by name, and a pod
    on another node if there is one. With `ingress`, it must also get an answer through the ingress controller: its own node's if
    one runs there.
    """

    nodes: tuple[str, ...] = ()
    ingress: bool = False
    outside: tuple[str, ...] = ()


class HostNetworkObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate rke2/host_network: the pods of check `host`, and the nodes that run a pod behind the Service they ask.

    Keys of a pod's report: node; upstreams (each DNS server of the kubelet's resolv.conf with its answer about an outside name);
    answered (nodes whose pods answered behind the Service), unanswered (number of requests without an answer); error.
    """

    pods: tuple[CheckPod, ...] = ()
    answers: tuple[str, ...] = ()


class HostNetworkExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate rke2/host_network for each of the servers `nodes`.

    From its host's network a server must reach a Service with pods on other nodes (`alone`: there is no other node), and a DNS
    server that knows the name `outside`; empty if the site needs none.
    """

    nodes: tuple[str, ...] = ()
    outside: str = ""
    alone: bool = False
