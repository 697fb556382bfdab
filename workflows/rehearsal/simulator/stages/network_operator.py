"""A simulated Network Operator: its chart, the controller of NicClusterPolicy and secondary networks, RDMA on nodes, Multus.

Behaviour follows `steps/docs/facts/gpu.md`, Network Operator.
"""

from __future__ import annotations

import functools
import ipaddress
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from workflows.rehearsal.simulator.api.api_kinds import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    Obj,
    ObjectKind,
    Ref,
    annotations_of,
    custom,
    labels_of,
)
from workflows.rehearsal.simulator.charts.chart_installers import CONTROL_PLANE, ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import (
    USUAL,
    ensure_daemon_set,
    fleet_nodes,
    has_ready_pod,
    play_other,
    serves_every_node,
)
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.controllers.simulated_pods import (
    Behaviour,
    BlockedStart,
    Exit,
    LongRunning,
    blocked_by,
    check,
    pod_program,
)
from workflows.rehearsal.simulator.machines.simulated_fleet import HardwareProfile
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator import RULES, install_nfd
from workflows.rehearsal.simulator.world import Changes, World

POLICIES = custom("mellanox.com", "NicClusterPolicy")
NETWORKS = tuple(custom("mellanox.com", kind) for kind in ("MacvlanNetwork", "IPoIBNetwork", "HostDeviceNetwork"))
SRIOV_POLICIES = custom("sriovnetwork.openshift.io", "SriovNetworkNodePolicy")
SRIOV_STATES = custom("sriovnetwork.openshift.io", "SriovNetworkNodeState")
SRIOV_NETWORKS = tuple(custom("sriovnetwork.openshift.io", kind) for kind in ("SriovNetwork", "SriovIBNetwork"))
POOLS = custom("nv-ipam.nvidia.com", "IPPool")
ATTACHMENTS = custom("k8s.cni.cncf.io", "NetworkAttachmentDefinition")
NETWORKS_ANNOTATION, STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
NAMESPACE = "nvidia-network-operator"
POLICY = "nic-cluster-policy"
NIC = "feature.node.kubernetes.io/pci-15b3.present"
MOFED_WAIT = "network.nvidia.com/operator.mofed.wait"
DRIVER = "simulated/nic-driver"
DEFAULT_MTU = 1500
"""MTU of an interface whose network names none."""
LARGE_MTU = 8000
"""MTU of the machines' interfaces by a fault: larger than the default, and none that plans have."""
OTHERS: tuple[tuple[str, ObjectKind, Ref, Obj, Obj], ...] = (
    (
        "second_multus",
        DAEMON_SETS,
        Ref("team-net", "meta-cni"),
        {"containers": [{"name": "agent", "image": "ghcr.io/k8snetworkplumbingwg/multus-cni:v4.2.2-thick"}]},
        {},
    ),
    (
        "second_nic_plugin",
        DAEMON_SETS,
        Ref("kube-system", "hca-resources"),
        {"containers": [{"name": "plugin", "image": "mellanox/k8s-rdma-shared-dev-plugin:v1.5.2"}]},
        {},
    ),
    (
        "second_network_operator",
        DEPLOYMENTS,
        Ref("mellanox", "controller"),
        {"containers": [{"name": "manager", "image": "nvcr.io/nvidia/cloud-native/network-operator:v25.7.0"}]},
        {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "fabric"},
    ),
)
"""Second instances that faults bring, none of which has a usual name: fault, kind, place, pod, labels."""
TENANT = "team-net"
"""Namespace of a team whose pods get addresses of the secondary network from an IPAM of its own, by fault."""
RECEIVING_RAIL = 3
"""Rail that fault `ib_receive_slow` slows down."""
SHARE = 0.968
"""Share of a port's line rate that ib_write_bw measures (387 of 400 Gbit/s)."""

PARTS = (
    ("state-OFED", "ofedDriver", "mofed-ubuntu24.04-6f8c4d9b7-ds"),
    ("state-RDMA-device-plugin", "rdmaSharedDevicePlugin", "rdma-shared-dp-ds"),
    ("state-SRIOV-device-plugin", "sriovDevicePlugin", "network-operator-sriov-device-plugin"),
    ("state-multus-cni", "secondaryNetwork.multus", "kube-multus-ds"),
    ("state-container-networking-plugins", "secondaryNetwork.cniPlugins", "cni-plugins-ds"),
    ("state-ipoib-cni", "secondaryNetwork.ipoib", "kube-ipoib-cni-ds"),
    ("state-ib-kubernetes", "ibKubernetes", ""),
    ("state-nv-ipam-cni", "nvIpam", "nv-ipam-node"),
    ("state-nic-feature-discovery", "nicFeatureDiscovery", "nic-feature-discovery-ds"),
    ("state-doca-telemetry-service", "docaTelemetryService", "doca-telemetry-service"),
)
"""Each state that the operator reports, in its order, with its path in the NicClusterPolicy's spec and its DaemonSet."""


@chart("network-operator")
def network_operator(world: World, release: ChartRelease) -> None:
    """Install the simulated chart network-operator: the operator, CRDs and a NodeFeatureRule. It creates no NicClusterPolicy.

    Raises ChartError if the kind NodeFeatureRule is missing, which the chart brings only with its own NFD.
    """
    release.crds("mellanox.com")
    release.crds("nv-ipam.nvidia.com")
    release.crds("k8s.cni.cncf.io")
    if release.value("nfd.enabled", True) or world.fault("network_operator_brings_nfd"):
        install_nfd(release, "network-operator")
    if release.value("nfd.deployNodeFeatureRules", True):
        release.put(RULES, {"metadata": {"name": "nvidia-nics-rules"}, "spec": {"rules": []}})
    if release.value("sriovNetworkOperator.enabled", False):
        release.crds("sriovnetwork.openshift.io")
        release.deployment("sriov-network-operator")
    release.deployment("network-operator", tolerations=CONTROL_PLANE)


class NetworkOperator:
    """Simulated controllers of the Network Operator. Like the real ones they call a DaemonSet ready only if all its nodes are."""

    name = "network_operator"
    kinds = (
        POLICIES,
        *NETWORKS,
        SRIOV_POLICIES,
        SRIOV_STATES,
        *SRIOV_NETWORKS,
        ATTACHMENTS,
        POOLS,
        DAEMON_SETS,
        DEPLOYMENTS,
        NODES,
    )

    def reconcile(self, world: World, changed: Changes) -> None:
        """Schedule the next reconciliation, and the next step of each changed node with a NIC."""
        policy = world.find(POLICIES, POLICY)
        if policy is None:
            return
        for other in OTHERS:
            play_other(world, *other)
        _play_tenant(world)
        world.later("network_operator/look", 2, 6, functools.partial(_look, world))
        for node in fleet_nodes(world, changed, POLICIES, SRIOV_POLICIES):
            if labels_of(node).get(NIC) == "true" and not admits(node, {"tolerations": _tolerations(policy)}, daemon=True):
                _node(world, policy, node, enforce=changed.everything)


def _play_tenant(world: World) -> None:
    """Create the pod of a team that joins the secondary network, on each victim of fault `fabric_address_of_tenant`."""
    for host in world.fleet:
        if world.fault("fabric_address_of_tenant", host.name) and world.find(PODS, f"train-{host.name}", TENANT) is None:
            world.create(NAMESPACES, {"metadata": {"name": TENANT}})
            meta: Obj = {"name": f"train-{host.name}", "namespace": TENANT, "annotations": {NETWORKS_ANNOTATION: "default/fabric"}}
            spec = {"nodeName": host.name, "containers": [{"name": "train", "image": "team/train:1"}]}
            world.create(PODS, {"metadata": meta, "spec": spec})


def _look(world: World) -> None:
    policy = world.find(POLICIES, POLICY)
    if policy is None or not has_ready_pod(world, NAMESPACE, "network-operator"):
        return
    applied = [{"name": state, "state": _part(world, policy, state, part, name)} for state, part, name in PARTS]
    bad = [entry["name"] for entry in applied if entry["state"] == "notReady"]
    reason = f"{', '.join(bad)} not ready" if bad else ""
    status = {"state": "notReady" if bad else "ready", "appliedStates": applied, "reason": reason}
    world.patch(POLICIES, policy, {"status": status}, status=True)
    for kind in NETWORKS:
        for network in world.objects(kind):
            state = "ready" if _attach(world, kind, network) else "notReady"
            world.patch(kind, network, {"status": {"state": state}}, status=True)
    for kind in SRIOV_NETWORKS:
        for network in world.objects(kind):
            _attach(world, kind, network)
    for pool in world.objects(POOLS):
        _allocate(world, pool)


def _part(world: World, policy: Obj, state: str, part: str, name: str) -> str:
    """Create the DaemonSet of one state and return `ready`, `notReady` or `ignore`.

    A state whose part the spec lacks is `ignore`, which does not keep the policy as a whole from being ready.
    """
    spec = _at(policy["spec"], part)
    if spec is None or (state == "state-RDMA-device-plugin" and world.fault("rdma_state_ignored")):
        return "ignore"
    if not name:
        return "ready"
    image = f"{spec.get('repository', '')}/{spec.get('image', '')}:{spec.get('version', '')}"
    operand = ensure_daemon_set(
        world,
        (POLICIES, policy),
        NAMESPACE,
        name,
        selector={NIC: "true"},
        image=image,
        tolerations=_tolerations(policy),
        on_delete=state == "state-OFED",
    )
    return "ready" if serves_every_node(operand) else "notReady"


def _tolerations(policy: Obj) -> list[Obj]:
    """Return the tolerations of the operator's DaemonSets: that of its manifests, and those of the policy."""
    return [*policy["spec"].get("tolerations", ()), *USUAL]


def _at(spec: Mapping[str, Any], path: str) -> Any:
    here: Any = spec
    for part in path.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here


def _attach(world: World, kind: ObjectKind, network: Obj) -> bool:
    """Create the NetworkAttachmentDefinition of a network and return True if it exists. A cluster-scoped network owns it."""
    name = network["metadata"]["name"]
    meta: Obj = {"name": name, "namespace": network["spec"].get("networkNamespace", "default")}
    # A namespaced owner may be in another namespace, which ownerReferences cannot express.
    if not kind.namespaced:
        meta["ownerReferences"] = [kind.owner(network)]
    world.create(ATTACHMENTS, {"metadata": meta, "spec": {"config": msgspec.json.encode({"name": name}).decode()}})
    return world.find(ATTACHMENTS, name, meta["namespace"]) is not None


def _allocate(world: World, pool: Obj) -> None:
    """Write one block of addresses for each node with a NIC into an IPPool's status, as nv-ipam-controller does.

    Nodes beyond the end of the subnet get no block.
    """
    names = [node["metadata"]["name"] for node in world.objects(NODES) if labels_of(node).get(NIC) == "true"]
    subnet, size = ipaddress.ip_network(pool["spec"]["subnet"]), int(pool["spec"]["perNodeBlockSize"])
    starts = ((name, subnet.network_address + world.fleet.number(name) * size) for name in sorted(names))
    fitting = ((name, start) for name, start in starts if start + size in subnet)
    blocks = [{"nodeName": name, "startIP": str(start + 1), "endIP": str(start + size)} for name, start in fitting]
    world.patch(POOLS, pool, {"status": {"allocations": blocks}}, status=True)


# ---- nodes -------------------------------------------------------------------------------------------------------------------


def _node(world: World, policy: Obj, node: Obj, *, enforce: bool) -> None:
    """Schedule a node's next step: the NIC driver if the operator installs it, then the RDMA resources that it advertises.

    With `enforce`, resources are advertised again at once, because a fault may have begun or ended.
    """
    name, spec = node["metadata"]["name"], policy["spec"]
    if "ofedDriver" in spec and DRIVER not in annotations_of(node):
        world.patch_soon(NODES, node, {"metadata": {"labels": {MOFED_WAIT: "true"}}})
        world.later(f"network_operator/{name}/driver", 60, 300, functools.partial(_load_driver, world, name))
        return
    for resource, count in _resources(world, policy, name):
        if node["status"].get("capacity", {}).get(resource) is None or enforce:
            low, high = (0.0, 0.0) if enforce else (5.0, 25.0)
            action = functools.partial(_advertise, world, name, resource, count)
            world.later(f"network_operator/{name}/{resource}", low, high, action)


def _load_driver(world: World, name: str) -> None:
    world.patch_node(name, {"metadata": {"annotations": {DRIVER: "ready"}, "labels": {MOFED_WAIT: "false"}}})


def _resources(world: World, policy: Obj, name: str) -> Iterator[tuple[str, int]]:
    """Yield name and count of each RDMA resource of a node, and write the states of its SR-IOV policies.

    A shared resource has the same count with one NIC as with eight.
    """
    hardware, spec = world.hardware(name), policy["spec"]
    for entry in _configured(spec.get("rdmaSharedDevicePlugin"), "configList"):
        yield f"rdma/{entry['resourceName']}", 0 if world.fault("rdma_no_devices", name) else int(entry.get("rdmaHcaMax", 1000))
    for entry in _configured(spec.get("sriovDevicePlugin"), "resourceList"):
        selectors = entry.get("selectors", {})
        chosen = _selected(hardware, selectors.get("devices", ()), selectors.get("pfNames", ()))
        count = 0 if world.fault("rdma_no_devices", name) else chosen
        yield f"{entry.get('resourcePrefix', 'nvidia.com')}/{entry['resourceName']}", count
    functions = Counter[str]()
    for sriov in world.objects(SRIOV_POLICIES):
        status = {"syncStatus": "Succeeded", "lastSyncError": ""}
        world.ensure(SRIOV_STATES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {}, "status": status})
        nic = sriov["spec"]["nicSelector"]
        ids = [nic["deviceID"]] if nic.get("deviceID") else []
        functions[f"nvidia.com/{sriov['spec']['resourceName']}"] += _selected(hardware, ids, nic.get("pfNames", ())) * int(
            sriov["spec"]["numVfs"]
        )
    yield from functions.items()


def _selected(hardware: HardwareProfile, ids: Collection[str], names: Collection[str]) -> int:
    """Return how many NICs of a machine a selector chooses by device ids and interface names; an empty list chooses all."""
    if ids and hardware.pci_nic not in ids:
        return 0
    return min(hardware.nics, len(names)) if names else hardware.nics


def _configured(part: Mapping[str, Any] | None, key: str) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(part["config"], type=dict[str, Any])[key]) if part else []


def _advertise(world: World, name: str, resource: str, count: int) -> None:
    amounts = {resource: str(count)}
    world.patch_node(name, {"status": {"capacity": amounts, "allocatable": amounts}}, status=True)


# ---- pods --------------------------------------------------------------------------------------------------------------------


blocked_by("rdma_plugin_image_missing", "app", "rdma-shared-dp-ds", "Back-off pulling image: not found", reason="ImagePullBackOff")


@pod_program("app", "mofed-ubuntu24.04-6f8c4d9b7-ds")
def mofed(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the pod of the NIC driver: it waits until the driver is loaded, then runs."""
    done = DRIVER in world.node_annotations(node)
    return LongRunning() if done or not world.sampled(node) else BlockedStart(init="network-operator-init-container")


@check("ib-write-bw")
def ib_write_bw(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `ib-write-bw`: report the bandwidth in Gbit/s of each NIC to two other pods of a ring of pods.

    The report has the form that `workflows/stages/scripts/ib_write_bw.sh` prints.
    """
    if _lacks_plugin(world, pod, node):
        network = annotations_of(pod)[NETWORKS_ANNOTATION]
        failed = 'failed to setup network for sandbox "5e0c1b": plugin type="multus" name="multus-cni-network" failed (add)'
        adding = f'error adding container to network "{network}"'
        return simulated_pods.without_sandbox(f'{failed}: {adding}: failed to find plugin "macvlan" in path [/opt/cni/bin]')
    environment = simulated_pods.environment(pod)
    size = int(environment["COUNT"])
    index = int(annotations_of(pod).get("batch.kubernetes.io/job-completion-index", 0))
    partners = [(index + 1) % size, *([(index + (2 if size == 3 else size // 2)) % size] if size > 2 else [])]
    rounds = [(partner, _rails(world, environment, node, _node_of(world, pod, partner))) for partner in partners]
    peer, rails = rounds[0]
    further = [{"peer": other, "rails": [_without_state(rail) for rail in measured]} for other, measured in rounds[1:]]
    report = {"node": node, "index": index, "peer": peer, "rails": rails, "further": further, "error": ""}
    report |= {"excluded": _excluded(world, node), "interfaces": list(_interfaces(world, pod, node))}
    return Exit(message=report, seconds=60 * len(rounds))


def _without_state(rail: Obj) -> Obj:
    return {key: value for key, value in rail.items() if key not in ("state", "gid", "mtu")}


def _lacks_plugin(world: World, pod: Obj, node: str) -> bool:
    """Return True if a pod asks for a secondary network on a node without the network's CNI plugin."""
    return bool(world.fault("cni_plugin_missing", node)) and NETWORKS_ANNOTATION in annotations_of(pod)


def _rails(world: World, environment: Mapping[str, str], node: str, partner: str) -> list[Obj]:
    """Return what each RDMA device of a node measures to a partner: those of the fabric, and a storage NIC with the same id."""
    hardware, named = world.hardware(node), environment.get("RAILS", "").split()
    devices = [f"mlx5_{number}" for number in range(hardware.nics + bool(world.fault("storage_nic_for_a_rail", node)))]
    excluded = {device["device"] for device in _excluded(world, node)}
    rails: list[Obj] = []
    for number, device in enumerate(devices):
        if device in excluded or (named and device not in named):
            continue
        # the partner has no storage NIC that would answer, or its own port is down
        down = number == 0 and any(world.fault(name, node) for name in ("ib_port_down", "storage_nic_for_a_rail"))
        state, gbit = ("DOWN", 0.0) if down else ("ACTIVE", _speed(world, node, partner, number))
        gid = _gid(world, environment["LINK"], node, number)
        mtu = {"mtu": _link_mtu(world, node)} if number < hardware.nics else {}
        rails.append({"device": device, "rail": number, "state": state, "gid": gid, **mtu, "gbit": gbit, "error": ""})
    return rails


def _gid(world: World, link: str, node: str, rail: int) -> str:
    """Return the GID of a port: by its IPv4 address with RoCE, by its GUID with InfiniBand.

    Victims of fault `fabric_gid_twice` have the addresses of the fleet's first machine.
    """
    number = 0 if world.fault("fabric_gid_twice", node) else world.fleet.number(node)
    if link == "Ethernet":
        return f"0000:0000:0000:0000:0000:ffff:{0xAC10 + rail:04x}:{number + 1:04x}"
    return f"fe80:0000:0000:0000:946d:ae03:{rail:04x}:{number + 1:04x}"


def _speed(world: World, node: str, partner: str, number: int) -> float:
    """Return the bandwidth in Gbit/s that a rail reaches from one node to another."""
    receives_slowly = number == RECEIVING_RAIL and world.fault("ib_receive_slow", partner)
    slow = world.fault("ib_slow", node) or world.fault("ib_slow", partner) or receives_slowly
    return round(world.hardware(node).nic_gbit * (0.24 if slow else SHARE), 2)


def _excluded(world: World, node: str) -> list[Obj]:
    """Return the devices of a node whose link layer is not that of the fabric."""
    return [{"device": "mlx5_1", "link": "Ethernet"}] if world.fault("ib_port_ethernet", node) else []


def _interfaces(world: World, pod: Obj, node: str) -> Iterator[Obj]:
    """Yield the secondary interfaces of a pod with their MTU, which the network's object sets, and the machine's behind them."""
    requested = annotations_of(pod).get(NETWORKS_ANNOTATION, "")
    for index, text in enumerate((part for part in requested.split(",") if part.strip()), 1):
        name = _attachment_ref(pod, text.strip()).name
        network = next((item for kind in NETWORKS for item in world.objects(kind) if item["metadata"]["name"] == name), None)
        mtu = DEFAULT_MTU if world.fault("fabric_mtu_in_pods", node) else _pod_mtu(world, network, node)
        yield {"name": f"net{index}", "mtu": mtu, "host": f"ibs{index}", "host_mtu": _link_mtu(world, node)}


def _link_mtu(world: World, node: str) -> int:
    """Return the MTU of a machine's interfaces of the fabric, which faults make larger than that of pods or of other machines."""
    raised = world.fault("machine_mtu_unlike_pods") or world.fault("rail_mtu_unlike", node)
    return LARGE_MTU if raised else world.hardware(node).link_mtu


def _pod_mtu(world: World, network: Obj | None, node: str) -> int:
    """Return the MTU of a secondary interface in a pod, by what makes the interface.

    A macvlan interface has the MTU of its network. A virtual function has that of its SriovNetworkNodePolicy, else the default of a
    new interface. Other networks give pods the machine's own link, or a child of it.
    """
    if network is not None:
        inherited = DEFAULT_MTU if world.fault("machine_mtu_unlike_pods") else _link_mtu(world, node)
        return int(network["spec"].get("mtu") or inherited)
    policies = (item["spec"] for item in world.objects(SRIOV_POLICIES)) if world.served(SRIOV_POLICIES) else ()
    return next((int(spec["mtu"]) for spec in policies if spec.get("mtu")), DEFAULT_MTU)


def _node_of(world: World, pod: Obj, index: int) -> str:
    """Return the node of the ring's pod with this index; `?`, which no fault hits, if it has none."""
    labels = {"bringup/check": "ib-write-bw", "batch.kubernetes.io/job-completion-index": str(index)}
    member = next(world.select(PODS, pod["metadata"]["namespace"], labels), None)
    return str(member["spec"].get("nodeName") or "?") if member else "?"


# ---- pods' secondary networks ----------------------------------------------------------------------------------------------------


class Multus:
    """Simulated Multus with its address plugin: a placed pod gets the secondary networks that it asks for at once."""

    name = "multus"
    kinds = (PODS, ATTACHMENTS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Write the network status of changed pods; of all pods if NetworkAttachmentDefinitions changed."""
        changed_pods = (world.find(PODS, at) for at in changed.refs(PODS))
        for pod in world.objects(PODS) if changed.concern(ATTACHMENTS) else filter(None, changed_pods):
            notes = annotations_of(pod)
            node = simulated_pods.node(pod)
            if NETWORKS_ANNOTATION in notes and STATUS_ANNOTATION not in notes and node and not _lacks_plugin(world, pod, node):
                _join_networks(world, pod, notes[NETWORKS_ANNOTATION])


def _join_networks(world: World, pod: Obj, requested: str) -> None:
    places = [_attachment_ref(pod, part.strip()) for part in requested.split(",") if part.strip()]
    if all(world.find(ATTACHMENTS, place) is not None for place in places):
        status = msgspec.json.encode(list(_network_status(world, pod, places))).decode()
        world.patch_soon(PODS, pod, {"metadata": {"annotations": {STATUS_ANNOTATION: status}}})


def _attachment_ref(pod: Obj, text: str) -> Ref:
    namespace, _, name = text.partition("@")[0].rpartition("/")
    return Ref(namespace or pod["metadata"]["namespace"], name)


def _network_status(world: World, pod: Obj, places: list[Ref]) -> Iterator[Obj]:
    """Yield a pod's network-status entries: the cluster's network, then one for each attachment in `places`.

    Addresses are from the node's block of the pool: the first ones for the pod of a check, the next for a pod of the platform.
    """
    node = simulated_pods.node(pod)
    number = world.fleet.number(node)
    pool: Obj = next((dict(item["spec"]) for item in world.objects(POOLS)), {"subnet": "192.168.0.0/16", "perNodeBlockSize": 16})
    block = 0 if world.fault("fabric_address_twice", node) else number
    first = ipaddress.ip_network(pool["subnet"]).network_address + block * int(pool["perNodeBlockSize"])
    yield {
        "name": "k8s-pod-network",
        "interface": "eth0",
        "ips": [f"10.{42 + number // 65536}.{number // 256 % 256}.{number % 256}"],
        "default": True,
        "dns": {},
    }
    # a node has one pod of each sort in these networks at a time
    is_first = simulated_pods.CHECK in labels_of(pod) or pod["metadata"]["namespace"] == TENANT
    before = 0 if is_first else len(places)
    for index, place in enumerate(places, 1):
        address = str(first + before + index)
        yield {"name": f"{place.namespace}/{place.name}", "interface": f"net{index}", "ips": [address], "dns": {}}


ROLES = (NetworkOperator, Multus)
