"""Reads the Network Operator's resources, the nodes' RDMA resources, and the pods of the bandwidth check."""

from collections.abc import Mapping

from msgspec import Struct

from steps.contract.objects.charts import ChartsObservation
from steps.stages.network_operator import probe_addresses, probe_nic_parts
from steps.stages.network_operator.contract import (
    NETWORK_STATUS,
    AppliedState,
    ControlObservation,
    FabricNode,
    FunctionalObservation,
    IpPoolBlocks,
    Network,
    NicPolicy,
    NodesObservation,
)
from steps.stages.shared import kube_objects, probe_charts, probe_checks, probe_workloads
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_workloads import is_nfd_worker, named_daemon_sets
from steps.stages.shared.quantities import whole_number

NAMESPACE = "nvidia-network-operator"
CHECK = "ib-write-bw"
RELEASE = "network-operator"

NIC_LABEL = "feature.node.kubernetes.io/pci-15b3.present"
MOFED_WAIT = "network.nvidia.com/operator.mofed.wait"
UPGRADE_STATE = "nvidia.com/ofed-driver-upgrade-state"
KINDS = {
    "MacvlanNetwork": "/apis/mellanox.com/v1alpha1/macvlannetworks",
    "IPoIBNetwork": "/apis/mellanox.com/v1alpha1/ipoibnetworks",
    "HostDeviceNetwork": "/apis/mellanox.com/v1alpha1/hostdevicenetworks",
    "SriovNetwork": "/apis/sriovnetwork.openshift.io/v1/sriovnetworks",
    "SriovIBNetwork": "/apis/sriovnetwork.openshift.io/v1/sriovibnetworks",
}
"""Kinds of secondary networks and their API paths."""


class _State(Struct, frozen=True):
    name: str = ""
    state: str = ""
    message: str = ""


class _PolicyStatus(Struct, frozen=True, rename="camel"):
    state: str = ""
    reason: str = ""
    applied_states: tuple[_State, ...] | None = None


class _RawPolicy(Struct, frozen=True):
    """A NicClusterPolicy or a secondary network as the API returns it."""

    metadata: kube_objects.ManagedMeta = kube_objects.ManagedMeta()
    status: _PolicyStatus = _PolicyStatus()


class _Allocation(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _PoolStatus(Struct, frozen=True):
    """Status of an address pool: the nodes to which blocks of addresses were handed out."""

    allocations: tuple[_Allocation, ...] | None = None


class _RawPool(Struct, frozen=True):
    metadata: kube_objects.ManagedMeta = kube_objects.ManagedMeta()
    status: _PoolStatus = _PoolStatus()


class _SyncStatus(Struct, frozen=True, rename="camel"):
    sync_status: str = ""
    last_sync_error: str = ""


class _NodeState(Struct, frozen=True):
    metadata: kube_objects.ManagedMeta = kube_objects.ManagedMeta()
    status: _SyncStatus = _SyncStatus()


def charts(kube: KubeReader, scope: Scope) -> ChartsObservation:
    """Return the state of the Network Operator's Helm release and of the CRDs that the task names (network_operator/charts)."""
    return probe_charts.with_charts(kube, scope)


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return NicClusterPolicies, secondary networks, address pools, the operator's workloads, and all NFD and Multus DaemonSets.

    The arguments `release` and `resource` tell what this platform itself has: its Helm release and its RDMA resource.
    """
    release, resource = str(scope.arguments.get("release", RELEASE)), str(scope.arguments.get("resource", ""))
    operands = probe_workloads.read(kube, NAMESPACE, lambda _: True, ("DaemonSet", "Deployment"))
    settled = all(entry.settled() or entry.desired == 0 for entry in operands)
    return ControlObservation(
        now=scope.now,
        policies=tuple(_policy(raw) for raw in kube.list("/apis/mellanox.com/v1alpha1/nicclusterpolicies", _RawPolicy) or ()),
        networks=_networks(kube),
        pools=_pools(kube),
        operands=operands,
        trouble=() if settled else probe_workloads.troubles(probe_workloads.pods(kube, NAMESPACE)),
        nfd=named_daemon_sets(kube, is_nfd_worker),
        multus=named_daemon_sets(kube, probe_nic_parts.is_multus),  # in all namespaces: RKE2 brings its own in kube-system
        others=probe_nic_parts.others(kube, NAMESPACE, release, resource.rpartition("/")[2]),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return the registered expected nodes with NIC label, SR-IOV state, and the count of the `resource` that the task names."""
    resource = str(scope.arguments.get("resource", ""))
    path = f"/apis/sriovnetwork.openshift.io/v1/namespaces/{NAMESPACE}/sriovnetworknodestates"
    raw_states = kube.list(path, _NodeState) if scope.arguments.get("sriov") else None
    states = {raw.metadata.name: raw.status for raw in raw_states or ()}
    nodes = probe_workloads.expected_nodes(kube, scope)
    return NodesObservation(nodes=tuple(sorted((_node(raw, resource, states) for raw in nodes), key=lambda node: node.name)))


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return the pods of check `ib-write-bw` with their reports and the networks that Multus attached, and who has their addresses.

    All pods of the cluster are listed only once no pod of the check runs any more: at 10,000 nodes that is a lot to read.
    """
    pods = probe_checks.read(kube, CHECK, annotations=(NETWORK_STATUS,))
    if not any(NETWORK_STATUS in pod.annotations for pod in pods) or any(pod.phase == "Running" for pod in pods):
        return FunctionalObservation(pods=pods)
    survey = probe_addresses.survey(kube, CHECK)
    return FunctionalObservation(pods=pods, holders=survey.holders, surveyed=survey.pods)


def _policy(raw: _RawPolicy) -> NicPolicy:
    applied = (
        AppliedState(name=applied_state.name, state=applied_state.state, message=applied_state.message[:300])
        for applied_state in raw.status.applied_states or ()
    )
    return NicPolicy(
        name=raw.metadata.name,
        state=raw.status.state,
        reason=raw.status.reason[:300],
        changed=kube_objects.spec_change_time(raw.metadata),
        applied=tuple(applied),
    )


def _networks(kube: KubeReader) -> tuple[Network, ...]:
    attachments = kube.list("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", probe_charts.AnyObject) or ()
    names = {raw.metadata.name for raw in attachments}
    return tuple(
        Network(
            kind=kind,
            name=raw.metadata.name,
            state=raw.status.state,
            reason=raw.status.reason[:300],
            attached=raw.metadata.name in names,
        )
        for kind, path in KINDS.items()
        for raw in kube.list(path, _RawPolicy) or ()
    )


def _pools(kube: KubeReader) -> tuple[IpPoolBlocks, ...]:
    pools = kube.list(f"/apis/nv-ipam.nvidia.com/v1alpha1/namespaces/{NAMESPACE}/ippools", _RawPool) or ()
    return tuple(
        IpPoolBlocks(
            name=raw.metadata.name, nodes=tuple(sorted(allocation.node_name for allocation in raw.status.allocations or ()))
        )
        for raw in pools
    )


def _node(raw: kube_objects.Node, resource: str, states: Mapping[str, _SyncStatus]) -> FabricNode:
    labels, sync = raw.metadata.labels, states.get(raw.metadata.name, _SyncStatus())
    return FabricNode(
        name=raw.metadata.name,
        ready=raw.ready,
        unschedulable=raw.spec.unschedulable,
        nic=labels.get(NIC_LABEL) == "true",
        mofed_wait=labels.get(MOFED_WAIT, ""),
        upgrade_state=labels.get(UPGRADE_STATE, ""),
        capacity=whole_number(raw.status.capacity.get(resource, "0")) or 0,
        allocatable=whole_number(raw.status.allocatable.get(resource, "0")) or 0,
        sync=sync.sync_status,
        sync_error=sync.last_sync_error[:300],
    )
