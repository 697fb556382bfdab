"""The Node objects of simulated machines: registration, readiness, taints, leases and kubelet version."""

from __future__ import annotations

import functools
import ipaddress
from typing import Any

from steps.contract.node_taints import from_text
from steps.stages.rke2.contract import parse_version
from workflows.rehearsal.simulator.api.api_kinds import DAEMON_SETS, LEASES, NODES, Obj, Ref, has_condition
from workflows.rehearsal.simulator.controllers import network_plugins
from workflows.rehearsal.simulator.virtual_clock import stamp
from workflows.rehearsal.simulator.world import Changes, World

REGISTER = {True: (15.0, 40.0), False: (8.0, 25.0)}
"""Shortest and longest time in virtual seconds from the start of RKE2 to the Node object; True: servers, False: agents."""

READY = (8.0, 30.0)

SIMULATED = "bringup/simulated"
"""Annotation of every simulated Node. Real nodes never have it, whatever their names."""

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
LEASED = "kube-node-lease"
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
VOTER = ("True", "MemberNotLearner", "Node is a voting member of the etcd cluster")
LOST = ("False", "MemberNotFound", "Node is not a member of the etcd cluster")
READY_REPORT = ("True", "KubeletReady", "kubelet is posting ready status")
NOT_READY_REPORT = (
    "False",
    "KubeletNotReady",
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized",
)


class Nodes:
    """Simulated kubelets as far as they report about their machines, and the node controller's taints."""

    name = "nodes"
    kinds = (NODES, DAEMON_SETS)

    def __init__(self) -> None:
        self._networks: set[Ref] = set()

    def reconcile(self, world: World, changed: Changes) -> None:
        """Schedule the registration of machines on which RKE2 runs; update conditions, taints and lease of changed nodes."""
        networks = {(namespace, name) for namespace, name, _ in network_plugins.CNI.values()}
        arrived = {at for at in changed.refs(DAEMON_SETS) if at in networks} - self._networks
        self._networks |= arrived
        names = list(world.hosts) if changed.everything or arrived else [at.name for at in changed.refs(NODES)]
        for name in names:
            state = world.hosts.get(name, {}).get("rke2")
            if state is None:
                continue
            if world.find(NODES, name) is None:
                low, high = REGISTER[state["server"]]
                world.later(f"nodes/{name}/register", low, high, functools.partial(_register, world, name))
            else:
                _look(world, name, state)


def address(world: World, name: str) -> str:
    """Return a machine's IP address; one derived from its number if the fleet only knows a DNS name."""
    host = world.host(name)
    try:
        return str(ipaddress.ip_address(host.address))
    except ValueError:
        return str(ipaddress.ip_address("10.200.0.10") + world.fleet.number(name))


def _register(world: World, name: str) -> None:
    state = world.hosts[name].get("rke2")
    if state is not None:
        world.create_soon(NODES, _node(world, name, state))
        world.patch_soon(NODES, Ref("", name), {"status": _status(world, name, state, ready=False)}, status=True)


def _look(world: World, name: str, state: dict[str, Any]) -> None:
    node = world.find(NODES, name)
    if node is None:
        return
    healthy = _network(world, state) and not world.fault("node_not_ready", name)
    if "status" not in node or "nodeInfo" not in node["status"]:
        world.patch(NODES, node, {"status": _status(world, name, state, ready=False)}, status=True)
    # Becoming ready takes time; losing readiness or a new version shows at once.
    elif healthy and not is_ready(node):
        world.later(f"nodes/{name}/ready", *READY, lambda: _turn(world, name))
    elif is_ready(node) != healthy or node["status"]["nodeInfo"]["kubeletVersion"] != _version(world, name, state):
        _turn(world, name)
    else:
        _taint(world, node, healthy)


def _turn(world: World, name: str) -> None:
    """Write the present readiness and kubelet version in a Node's status, its taints and its lease."""
    state, node = world.hosts[name].get("rke2"), world.find(NODES, name)
    if state is None or node is None:
        return
    ready = _network(world, state) and not world.fault("node_not_ready", name)
    status = _status(world, name, state, ready=ready)
    kept = {entry["type"]: entry for entry in node.get("status", {}).get("conditions") or ()}
    for entry in status["conditions"]:
        before = kept.get(entry["type"])
        if before is not None and before["status"] == entry["status"]:
            entry["lastTransitionTime"] = before["lastTransitionTime"]
    own = {entry["type"] for entry in status["conditions"]}
    status["conditions"] += [entry for kind, entry in kept.items() if kind not in own]
    amounts = ("capacity", "allocatable")
    world.patch_soon(NODES, node, {"status": {key: value for key, value in status.items() if key not in amounts}}, status=True)
    _taint(world, node, ready)
    _lease(world, node, ready)


def is_ready(node: Obj) -> bool:
    """Return True if a node's Ready condition is true."""
    return has_condition(node, "Ready")


def _network(world: World, state: dict[str, Any]) -> bool:
    namespace, name = network_plugins.network_daemon_set(state["cni"])
    return world.find(DAEMON_SETS, name, namespace) is not None


def _taint(world: World, node: Obj, ready: bool) -> None:
    """Set the taints of a Node that is not ready or that is cordoned, and remove them otherwise."""
    present = node["spec"].get("taints") or []
    wanted = [taint for taint in present if taint["key"] not in (NOT_READY["key"], CORDON["key"])]
    wanted += [] if ready else [NOT_READY]
    wanted += [CORDON] if node["spec"].get("unschedulable") else []
    if {taint["key"] for taint in present} != {taint["key"] for taint in wanted}:
        world.patch_soon(NODES, node, {"spec": {"taints": wanted or None}})


def _lease(world: World, node: Obj, ready: bool) -> None:
    """Renew the lease of a Ready node ahead of time; set that of another node back to the present, so that it expires."""
    name = node["metadata"]["name"]
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _micro(world.now + world.lease_ahead * ready)}
    meta = {"name": name, "namespace": LEASED, "ownerReferences": [NODES.owner(node, controller=False)]}
    world.create_soon(LEASES, {"metadata": meta, "spec": spec})
    world.patch_soon(LEASES, Ref(LEASED, name), {"spec": spec})
    if ready and world.lease_ahead:
        world.clock.schedule(f"nodes/{name}/lease", world.lease_ahead - 60, lambda: _renew(world, name))


def _renew(world: World, name: str) -> None:
    node = world.find(NODES, name)
    if node is not None and is_ready(node):
        _lease(world, node, True)


def _micro(seconds: float) -> str:
    """Return seconds since the epoch as a timestamp with microseconds, as leases have it."""
    return stamp(seconds).replace("Z", f".{int(seconds % 1 * 1e6):06d}Z")


class Heartbeats:
    """Renews the leases of nodes every few real seconds whatever virtual time does: a real node controller waits 50 s at most.

    Renewal times never go back. If a restored snapshot sets virtual time back, they continue from the latest one.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._left = every
        self._latest = 0.0

    def renew_leases(self, world: World, wall: float) -> None:
        """Renew the leases of all Ready nodes if it is time, one request each. `wall`: real seconds since the last call."""
        self._left -= wall
        if self._left > 0:
            return
        self._left = self._every
        self._latest = max(world.now + world.lease_ahead, self._latest + self._every)
        change = {"spec": {"renewTime": _micro(self._latest)}}
        for name in world.hosts:
            node = world.find(NODES, name)
            if node is not None and is_ready(node):
                world.patch_soon(LEASES, Ref(LEASED, name), change)
        world.flush()


def _node(world: World, name: str, state: dict[str, Any]) -> Obj:
    host = world.host(name)
    base = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    labels = base | {f"beta.{key}": base[key] for key in ("kubernetes.io/os", "kubernetes.io/arch")}
    labels["node.kubernetes.io/instance-type"] = "rke2"
    if host.rack:
        labels["topology.kubernetes.io/zone"] = host.rack
    if state["server"]:
        labels |= {"node-role.kubernetes.io/control-plane": "true", "node-role.kubernetes.io/etcd": "true"}
    annotations = {
        SIMULATED: "true",
        "rke2.io/hostname": name,
        "rke2.io/internal-ip": address(world, name),
        "node.alpha.kubernetes.io/ttl": "0",
    }
    taints = list(map(from_text, state["taints"]))
    # A node with the fault registered before the labels of config.yaml were written.
    own = {} if world.fault("node_labels_old", name) else state["labels"]
    return {
        "metadata": {"name": name, "labels": labels | own, "annotations": annotations},
        "spec": {"providerID": f"rke2://{name}", "taints": [*taints, NOT_READY]},
    }


def _status(world: World, name: str, state: dict[str, Any], *, ready: bool) -> Obj:
    hardware, number = world.hardware(name), world.fleet.number(name)
    capacity = {
        "cpu": str(hardware.cpus),
        "memory": f"{hardware.memory_gib}Gi",
        "pods": str(hardware.pods),
        "ephemeral-storage": "1700Gi",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
    }
    reserved = {"cpu": str(hardware.cpus - 1), "memory": f"{hardware.memory_gib - 8}Gi"}
    return {
        "capacity": capacity,
        "allocatable": capacity | reserved,
        "conditions": _conditions(world, name, state, ready),
        **_endpoint(world, name),
        "nodeInfo": {
            "machineID": f"{number + 1:032x}",
            "systemUUID": f"{number + 1:032x}",
            "bootID": f"{world.seed:016x}{number + 1:016x}",
            "kernelVersion": hardware.kernel,
            "osImage": hardware.os_image,
            "containerRuntimeVersion": "containerd://2.1.4-k3s1",
            "kubeletVersion": _version(world, name, state),
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def _endpoint(world: World, name: str) -> Obj:
    """Return the part of a Node's status that says where its kubelet is: addresses and port."""
    if world.kubelets is not None:
        return world.kubelets.status
    addresses = [{"type": "InternalIP", "address": address(world, name)}, {"type": "Hostname", "address": name}]
    return {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}


def _conditions(world: World, name: str, state: dict[str, Any], ready: bool) -> list[Obj]:
    rows = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", *(READY_REPORT if ready else NOT_READY_REPORT)),
    ]
    if state["server"]:
        rows.append(("EtcdIsVoter", *(LOST if world.fault("etcd_member_missing", name) else VOTER)))
    times = {"lastHeartbeatTime": world.stamp(), "lastTransitionTime": world.stamp()}
    return [{"type": kind, "status": status, "reason": reason, "message": text} | times for kind, status, reason, text in rows]


def _version(world: World, name: str, state: dict[str, Any]) -> str:
    """Return the version of a machine's kubelet; with the fault `kubelet_version_skew`, that of the preceding release."""
    wanted = str(state["version"])
    release = parse_version(wanted)
    if release is None or not world.fault("kubelet_version_skew", name):
        return wanted
    minor, patch = (release.minor, release.patch - 1) if release.patch else (release.minor - 1, 9)
    return f"v{release.major}.{minor}.{patch}+rke2r1"
