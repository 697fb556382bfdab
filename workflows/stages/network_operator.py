"""Stage network_operator: install NIC driver, RDMA and networks for pods, proven by the bandwidth between neighbouring nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.criteria import multus_owner
from workflows.spec.gpu_pools import ports_floor
from workflows.spec.parsing.document import value_at
from workflows.spec.sections.platform import Fabric
from workflows.stage_names import StageName
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Stage, Step, task

STAGE: StageName = "network_operator"
RELEASE = "network_operator"
CHECK = "ib-write-bw"
CHARTS, CONTROL = "network_operator/charts", "network_operator/control"
NODES, FUNCTIONAL = "network_operator/nodes", "network_operator/functional"
CONTROL_SECONDS, NODES_SECONDS, FUNCTIONAL_SECONDS = 2400, 900, 1200
"""Time limits in seconds of the three gates: a NIC driver container may build for 20 minutes.

The bandwidth check takes 5 s for each of up to 8 devices and each of two partners, and 7 minutes more if a partner is missing.
"""

VIRTUAL_FUNCTION = "101e"
"""PCI device id of every virtual function of ConnectX-4 and later (mlx5)."""

_STATES = {
    "ofedDriver": "state-OFED",
    "rdmaSharedDevicePlugin": "state-RDMA-device-plugin",
    "sriovDevicePlugin": "state-SRIOV-device-plugin",
    "nvIpam": "state-nv-ipam-cni",
    "ibKubernetes": "state-ib-kubernetes",
    "nicFeatureDiscovery": "state-nic-feature-discovery",
    "secondaryNetwork.cniPlugins": "state-container-networking-plugins",
    "secondaryNetwork.ipoib": "state-ipoib-cni",
    "secondaryNetwork.multus": "state-multus-cni",
}
"""Path in a NicClusterPolicy's spec → the state in its status that reports on this part.

Source: `steps/docs/facts/gpu.md`, Network Operator.
"""

PARTNERS = 2
"""Other nodes to which each node measures, as in `scripts/ib_write_bw.sh`: two tell whose side of a slow pair is slow."""
_LINK = {"infiniband": "InfiniBand", "roce": "Ethernet"}


def build(site: Site) -> Stage | None:
    """Return stage network_operator, or None if the spec has no fabric."""
    release = site.releases.get(RELEASE)
    if release is None or site.spec.fabric.kind == "none":
        return None
    gates = {"charts": CHARTS, "control": CONTROL, "nodes": NODES, "functional": FUNCTIONAL}
    charts: Object = {"releases": [manifest_objects.expected_release(site, release)], "crds": list(release.crds)}
    charts |= manifest_objects.root_app(site, (release,))
    return Stage(
        id=STAGE,
        title="Network Operator",
        steps=(
            manifest_objects.apply_step(site, STAGE, (release,), CHARTS, charts, (rights.CRDS,)),
            _charts(site, release, charts),
            _configure(site, release),
            _control(site, release),
            _nodes(site),
            _functional(site),
            manifest_objects.judge(site, STAGE, gates),
        ),
        gates=tuple(gates.values()),
        changes=_changes(site, release),
        rollback=release.rollback,
        releases=(release.id,),
    )


def _changes(site: Site, release: PlannedRelease) -> tuple[Change, ...]:
    changes = list(manifest_objects.installs((release,)))
    if site.spec.fabric.driver == "operator":
        where = f"{site.count('gpu')} GPU nodes"
        changes.append(Change(what="replace the NIC driver, which resets the fabric's links", where=where))
    applied = ", ".join(f"{item['kind']} {item['metadata']['name']}" for item in release.objects)
    return (*changes, Change(what=f"apply {applied}", where="cluster"))


def _charts(site: Site, release: PlannedRelease, expectations: Object) -> Step:
    arguments = {"gate": CHARTS, "namespaces": [release.namespace], **expectations}
    deadline = release.timeout_seconds + 300
    return Step(
        task=task(STAGE, "charts", Verb.WAIT, deadline=deadline, arguments=arguments, expectations=expectations),
        after=("apply",),
        rules=(*rights.gate_rules(site, (release,)), rights.CRDS),
    )


# ---- policy and networks -------------------------------------------------------------------------------------------------------


def required_states(policy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield state name and image tag for each part that the NicClusterPolicy asks for; the tag is empty if it names none."""
    for path, state in _STATES.items():
        value = value_at(policy.get("spec", {}), path)
        if value is not None:
            yield state, str(value.get("version", ""))


def _control_expectations(site: Site, release: PlannedRelease) -> Object:
    items = release.objects
    policy = next((item for item in items if item["kind"] == "NicClusterPolicy"), {})
    expectations: Object = {
        "least": site.needed(STAGE, "gpu"),
        "states": dict(required_states(policy)),
        "networks": [f"{item['kind']}/{item['metadata']['name']}" for item in items if item["kind"].endswith("Network")],
        "pools": [item["metadata"]["name"] for item in items if item["kind"] == "IPPool"],
        "multus": site.spec.fabric.has_network and multus_owner(site.spec) != "none",
    }
    return {key: value for key, value in expectations.items() if value}


_READS = (
    Rule(
        groups=("mellanox.com",),
        resources=("nicclusterpolicies", "macvlannetworks", "ipoibnetworks", "hostdevicenetworks"),
        verbs=("list",),
    ),
    Rule(
        groups=("sriovnetwork.openshift.io",),
        resources=("sriovnetworks", "sriovibnetworks", "sriovnetworknodestates"),
        verbs=("list",),
    ),
    Rule(groups=("k8s.cni.cncf.io",), resources=("network-attachment-definitions",), verbs=("list",)),
    Rule(groups=("nv-ipam.nvidia.com",), resources=("ippools",), verbs=("list",)),
    Rule(groups=("apps",), resources=("daemonsets", "deployments"), verbs=("list",)),
    Rule(groups=("",), resources=("nodes",), verbs=("list",)),
    *rights.DIAGNOSE,
)


def _own(site: Site, release: PlannedRelease) -> Object:
    """Return what the probe needs to tell other operators and device plugins from this platform's."""
    return {"release": release.release_name, "resource": site.spec.fabric.resource_key}


def _configure(site: Site, release: PlannedRelease) -> Step:
    arguments = {
        "objects": [dict(item) for item in release.objects],
        "gate": CONTROL,
        "select": "gpu",
        "gate_expectations": _control_expectations(site, release),
        **_own(site, release),
    }
    return Step(
        task=task(STAGE, "configure", Verb.APPLY, deadline=300, arguments=arguments),
        after=("charts",),
        rules=(*rights.CLAIM, *rights.kind_rules(release), *_READS),
    )


def _control(site: Site, release: PlannedRelease) -> Step:
    arguments = {"gate": CONTROL, "select": "gpu", "stable_seconds": 20, "namespaces": [release.namespace], **_own(site, release)}
    expectations = _control_expectations(site, release)
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=CONTROL_SECONDS, arguments=arguments, expectations=expectations),
        after=("configure",),
        rules=_READS,
    )


# ---- nodes ---------------------------------------------------------------------------------------------------------------------


def _nodes(site: Site) -> Step:
    fabric = site.spec.fabric
    resource: Object = {"resource": fabric.resource_key, "sriov": fabric.mode == "sriov"}
    # the fewest units that a node must advertise; a shared device says nothing about the number of NICs
    count = fabric.attachments * (fabric.virtual_functions if fabric.mode == "sriov" else 1)
    arguments: Object = {
        "gate": NODES,
        "select": "gpu",
        # verdicts about nodes are only recorded here: the judge applies the quorum
        "decides": False,
        "stable_seconds": 10,
        "namespaces": ["nvidia-network-operator"],
        **resource,
    }
    expectations = {"count": count, "mofed": fabric.driver == "operator", **resource}
    return Step(
        task=task(STAGE, "nodes", Verb.WAIT, deadline=NODES_SECONDS, arguments=arguments, expectations=expectations),
        after=("control",),
        rules=_READS,
    )


# ---- bandwidth -----------------------------------------------------------------------------------------------------------------


def _functional(site: Site) -> Step:
    fabric = site.spec.fabric
    networks = ["default/fabric"] if fabric.has_network else []
    annotations = {"k8s.v1.cni.cncf.io/networks": ",".join(networks * fabric.attachments)} if networks else None
    job = manifest_objects.per_node_job(STAGE, CHECK, _pod(site), seconds=FUNCTIONAL_SECONDS - 60, annotations=annotations)
    expectations: Object = {
        "rails": fabric.nics_per_node,
        "floor": ports_floor(site.spec) or 0.0,
        "partners": PARTNERS,
        "link": _LINK[fabric.kind],
    }
    expectations |= {"names": list(fabric.rails)} if fabric.rails else {}
    expectations |= {"networks": networks} if networks else {}
    expectations |= _mtus(fabric)
    return manifest_objects.check_step(
        STAGE,
        FUNCTIONAL,
        CHECK,
        # a headless Service, by which the pods of the ring find each other by index
        [manifest_objects.ring_service(STAGE, CHECK, CHECK, {"clusterIP": "None"}), job],
        deadline=FUNCTIONAL_SECONDS,
        expectations=expectations,
        rules=(manifest_objects.SERVICE_RIGHTS,),
        select="gpu",
        # bandwidth is measured between neighbours, so one node alone proves nothing
        least=2,
        namespaces=["nvidia-network-operator"],
    )


def _mtus(fabric: Fabric) -> Object:
    """Return the MTUs that some step sets, of interfaces in pods and of the machines' rails; the gate compares the others."""
    of_host = fabric.driver == "host"
    # with fewer interfaces than rails, OS prep sets the MTU of these alone
    every_rail = of_host and (not fabric.interfaces or len(fabric.interfaces) >= fabric.nics_per_node)
    by_object = fabric.mode in ("macvlan", "sriov")
    # an IPoIB interface inherits the MTU of its master, which is the first of fabric.interfaces
    in_pods = fabric.has_network and (by_object or every_rail or (of_host and fabric.mode == "ipoib"))
    # virtual functions without a planned MTU get the default, and the SR-IOV operator raises the MTU of ports but never lowers it
    larger_ports = fabric.mode == "sriov" and not (fabric.mtu and every_rail)
    larger_ports = larger_ports or (fabric.mode == "macvlan" and fabric.mtu is not None and not of_host)
    expectations: Object = {"mtu": fabric.mtu} if fabric.mtu and in_pods else {}
    expectations |= {"rail_mtu": fabric.mtu} if fabric.mtu and every_rail else {}
    return expectations | ({"larger_ports": True} if larger_ports else {})


def _pod(site: Site) -> Object:
    """Return the pod spec of the bandwidth check, with the node's RDMA devices.

    The pod gets only the number of pods, because a list of all names in each pod would grow with the square of the nodes.
    """
    fabric = site.spec.fabric
    ids = (*fabric.device_ids, VIRTUAL_FUNCTION) if fabric.mode == "sriov" else fabric.device_ids
    env = [
        manifest_objects.node_name(),
        {"name": "DEVICE_IDS", "value": " ".join(ids)},
        {"name": "LINK", "value": _LINK[fabric.kind]},
        {"name": "RING", "value": CHECK},
        {"name": "COUNT", "value": "@count_text"},
        {"name": "NICS", "value": str(fabric.nics_per_node)},
        {"name": "FLOOR", "value": f"{ports_floor(site.spec) or 0:g}"},
    ]
    if fabric.rails:
        env.append({"name": "RAILS", "value": " ".join(fabric.rails)})
    if not fabric.attachments_are_allocated:
        env.append({"name": "NUMBERS", "value": "name"})
    measuring = manifest_objects.container(
        site.spec.validation.image,
        manifest_objects.packed_script("ib_write_bw.sh"),
        env=env,
        resources={"limits": {fabric.resource_key: fabric.attachments}},
        # RDMA registers locked memory: without IPC_LOCK ibv_reg_mr fails
        securityContext={"capabilities": {"add": ["IPC_LOCK"]}},
        volumeMounts=[{"name": "sys", "mountPath": "/host/sys", "readOnly": True}],
    )
    # a mount of sysfs shows the interfaces of the network namespace in which it was made: the pod's own lacks those of the machine
    machine = {"name": "sys", "hostPath": {"path": "/sys", "type": "Directory"}}
    return {"subdomain": CHECK, "containers": [measuring], "volumes": [machine]}
