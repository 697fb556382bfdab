"""Gates of network_operator: required states are ready and not ignored, one NFD, one Multus, and bandwidth between neighbours.

See `steps/docs/facts/gpu.md`, Network Operator.
"""

import msgspec

from steps.contract.objects.charts import ChartsExpectation, ChartsObservation, Workload
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes, passed
from steps.stages.network_operator import gate_ring, gate_secondary_networks
from steps.stages.network_operator.contract import (
    ControlExpectation,
    ControlObservation,
    FabricNode,
    FunctionalExpectation,
    FunctionalObservation,
    NicPolicy,
    NodesExpectation,
    NodesObservation,
)
from steps.stages.shared import gate_charts, gate_checks
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.shared.gate_operands import SETTLE_SECONDS, one_nfd, serves

CHARTS = "network_operator/charts"
CONTROL = "network_operator/control"
NODES = "network_operator/nodes"
FUNCTIONAL = "network_operator/functional"
POLICY = "nic-cluster-policy"

OPERANDS = {
    "state-OFED": ("mofed-",),
    "state-RDMA-device-plugin": ("rdma-shared-dp-ds",),
    "state-SRIOV-device-plugin": ("network-operator-sriov-device-plugin", "sriov-device-plugin"),
    "state-multus-cni": ("kube-multus-ds",),
    "state-container-networking-plugins": ("cni-plugins-ds",),
    "state-ipoib-cni": ("kube-ipoib-cni-ds",),
    "state-nv-ipam-cni": ("nv-ipam-node",),
    "state-nic-feature-discovery": ("nic-feature-discovery-ds",),
    "state-ib-kubernetes": (),
}
"""State → name prefixes of its DaemonSets (Mellanox/network-operator `manifests/`)."""


def charts(seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """Check that the chart is deployed and its kinds are served, so that its resources can be applied."""
    return gate_charts.with_charts(CHARTS, seen, want)


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check one NFD, Multus and operator, every wanted state with its images, networks attached, and addresses handed out."""
    alone = one_nfd(seen.nfd) or _one_multus(seen, want) or _no_others(seen)
    finding = alone or _policy(seen, want) or _networks(seen, want) or _pools(seen, want)
    if finding is not None:
        return finding.verdict(CONTROL)
    return passed(CONTROL, f"{count(len(want.states), 'state')} ready: {', '.join(want.states)}")


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that every expected node has a NIC and its driver, and advertises the RDMA resource.

    A shared resource has the same count with one NIC as with eight, and the verdict says so: gate `functional` counts the NICs.
    """
    by_name = {node.name: node for node in seen.nodes}
    rows = [_node(name, by_name.get(name), want) for name in want.nodes]
    shared = "; a shared count tells nothing of the number of NICs, which the bandwidth check counts"
    return of_nodes(NODES, rows, what=f"{want.resource} allocatable{shared if want.resource.startswith('rdma/') else ''}")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that every rail of every node reaches the floor in both directions, with networks, addresses and MTU as planned.

    One fast direction or one fast partner does not clear a rail.
    """
    what = f"{want.rails} rails at {want.floor:g} Gbit/s or more in both directions"
    rows, measured = gate_ring.judge_ring(seen, want)
    verdict = of_nodes(FUNCTIONAL, rows, what=what, notes=gate_secondary_networks.notes(seen.pods, want))
    return gate_checks.conclude(msgspec.structs.replace(verdict, measured=(measured,)))


def _one_multus(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    if len(seen.multus) > 1:
        step = "keep RKE2's or the operator's, not both: they fight over /etc/cni/net.d"
        return fail(FailureClass.DEPENDENCY, f"{len(seen.multus)} Multus: {', '.join(seen.multus)}", "exactly one", step)
    if want.multus and not seen.multus:
        step = "see fabric.multus and rke2.cni in the spec"
        return unknown(FailureClass.DEPENDENCY, "no Multus DaemonSet", "exactly one", step)
    return None


def _no_others(seen: ControlObservation) -> Finding | None:
    """Return a failure if somebody else's Network Operator or device plugin for NICs runs, in whatever namespace."""
    if not seen.others:
        return None
    first = seen.others[0]
    origin = ", ".join(filter(None, (f"image {first.image}" if first.image else "", f"of {first.owner}" if first.owner else "")))
    more = f" and {len(seen.others) - 1} more" if len(seen.others) > 1 else ""
    step = "find who runs it and remove it: both register the same devices, or act on the same NICs"
    return fail(
        FailureClass.DEPENDENCY, f"a second {first.part} runs: {first.name} ({origin}){more}", "none beside this platform's", step
    )


def _policy(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    policy = next((candidate for candidate in seen.policies if candidate.name == POLICY), None)
    if policy is None:
        names = ", ".join(candidate.name for candidate in seen.policies) or "none"
        expected = f"one named {POLICY}, the only name that is reconciled"
        return unknown(FailureClass.APPLY, f"no NicClusterPolicy {POLICY} (there are: {names})", expected, "apply this stage again")
    # the status has neither times nor a generation, so only waiting shows that it is about the newest spec
    if not policy.changed or seen.now - policy.changed < SETTLE_SECONDS:
        ago = f"{seen.now - policy.changed:.0f} s ago" if policy.changed else "at a time that it does not tell,"
        state = f"{POLICY} changed {ago} and says {policy.state or 'nothing'}"
        expected = f"its status {SETTLE_SECONDS:.0f} s after the change"
        return unknown(FailureClass.HEALTH, state, expected, "wait: the status does not tell which spec it is about")
    problems = (_state(name, tag, policy, seen, want) for name, tag in want.states.items())
    return next((problem for problem in problems if problem is not None), None) or _overall(policy, want)


def _state(name: str, tag: str, policy: NicPolicy, seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    applied = next((part for part in policy.applied if part.name == name), None)
    state = applied.state if applied else "not listed"
    daemons = [entry for entry in seen.operands if entry.name.startswith(OPERANDS.get(name, ())) and entry.kind == "DaemonSet"]
    # the operator wants every node; the quorum lets some go
    if state == "ready" or (state == "notReady" and serves(daemons, want.least)):
        return _vacuous(name, daemons, seen, want) or _tag(name, tag, daemons)
    message = f"{name} is {state} {applied.message if applied else ''}".rstrip()
    # `ignore` means that the part is missing in the spec in the cluster, although the plan has it
    if state == "ignore":
        step = f"compare the spec of NicClusterPolicy {POLICY} in the cluster with the plan: this part is missing there"
        return fail(FailureClass.COMPARISON, message, "ready: the spec asks for it", step)
    if state == "error":
        return fail(FailureClass.APPLY, message, "ready", "read the log of the network operator")
    expected = f"ready, or its DaemonSet ready on {want.least} nodes"
    step = "kubectl -n nvidia-network-operator get pods"
    return _unsettled(daemons, seen) or unknown(FailureClass.HEALTH, f"{message}; {_counts(daemons)}", expected, step)


def _unsettled(daemons: list[Workload], seen: ControlObservation) -> Finding | None:
    """Return a finding on the first DaemonSet with missing pods; None without one, or if no pod of the operator shows a reason."""
    late = next((daemon for daemon in daemons if not daemon.settled()), None)
    return gate_charts.judge_unsettled(late, seen.trouble, "nvidia-network-operator") if late and seen.trouble else None


def _counts(daemons: list[Workload]) -> str:
    return ", ".join(f"{daemon.name} {daemon.ready} of {daemon.desired}" for daemon in daemons) or "no DaemonSet of it"


def _vacuous(name: str, daemons: list[Workload], seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return a finding if a state says ready although its DaemonSet serves too few nodes; it also does if no node matches."""
    if not OPERANDS.get(name) or serves(daemons, want.least):
        return None
    problem, expected = f"{name} says ready with {_counts(daemons)}", f"ready on at least {want.least} nodes"
    step = "see the label feature.node.kubernetes.io/pci-15b3.present, which selects the nodes"
    return _unsettled(daemons, seen) or unknown(FailureClass.DEPENDENCY, problem, expected, step)


def _tag(name: str, tag: str, daemons: list[Workload]) -> Finding | None:
    stale = next((daemon for daemon in daemons if tag and not daemon.image.rpartition(":")[2].startswith(tag)), None)
    if stale is None:
        return None
    image = f"{name} says ready, but {stale.name} runs {stale.image.rpartition(':')[2] or 'no image'}"
    return unknown(FailureClass.COMPARISON, image, tag, "the operator has not acted on the new spec: read its log")


def _overall(policy: NicPolicy, want: ControlExpectation) -> Finding | None:
    others = [applied for applied in policy.applied if applied.name not in want.states and applied.state in ("notReady", "error")]
    if policy.state == "error" or others:
        reason = f"{others[0].name} is {others[0].state} {others[0].message}" if others else policy.reason
        failure_class = FailureClass.APPLY if policy.state == "error" else FailureClass.HEALTH
        expected = "state ready, and no part that the plan does not know"
        step = "find who else writes this NicClusterPolicy"
        return fail(failure_class, f"{POLICY} is {policy.state}: {reason}".rstrip(), expected, step)
    if policy.state == "ready" or (policy.state == "notReady" and any(applied.state == "notReady" for applied in policy.applied)):
        return None
    return unknown(FailureClass.HEALTH, f"{POLICY} is {policy.state or 'without a state'}", "ready", "read the operator's log")


def _networks(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    by_name = {f"{network.kind}/{network.name}": network for network in seen.networks}
    for name in want.networks:
        network = by_name.get(name)
        sriov = name.startswith("Sriov")  # the SR-IOV operator writes no state; the attachment is all it makes
        if network is not None and network.attached and (network.state == "ready" or sriov):
            continue
        state = "does not exist "
        if network is not None:
            state = f"is {network.state or 'without a state'}, {'' if network.attached else 'not '}attached {network.reason}"
        expected, step = "ready, with its NetworkAttachmentDefinition", "see the network's namespace and master interface"
        return unknown(FailureClass.APPLY, f"{name} {state}".rstrip(), expected, step)
    return None


def _pools(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    by_name = {pool.name: pool for pool in seen.pools}
    for name in want.pools:
        pool = by_name.get(name)
        served = set(pool.nodes) & set(want.nodes) if pool else set()
        if pool is None or len(served) < want.least:
            state = "does not exist" if pool is None else f"has blocks for {len(served)} expected nodes"
            expected = f"blocks for at least {want.least} nodes"
            step = "see fabric.ip_pool: subnet ÷ per_node_block must be enough for all nodes; log of nv-ipam-controller"
            return unknown(FailureClass.INPUT, f"address pool {name} {state}", expected, step)
    return None


def _node(name: str, node: FabricNode | None, want: NodesExpectation) -> NodeVerdict:
    if node is None:
        missing = fail(FailureClass.DEPENDENCY, "no such node in the cluster", "a registered node", "see stage rke2")
        return missing.of_node(name)
    return node_verdict(name, _node_problem(node, want), f"{want.resource} {node.allocatable}")


def _node_problem(node: FabricNode, want: NodesExpectation) -> Finding | None:
    """Return the first problem of a node, in the order in which label, driver and resource come up; None if there is none."""
    if not node.ready:
        step = "a NIC driver may have taken the primary interface away"
        return unknown(FailureClass.HEALTH, "node is not Ready", "Ready", step)
    if not node.nic:
        label = "label feature.node.kubernetes.io/pci-15b3.present"
        return unknown(FailureClass.HARDWARE, "NFD found no NVIDIA NIC", label, "lspci -d 15b3: on the node")
    if node.upgrade_state == "upgrade-failed":
        return fail(FailureClass.RUNTIME, "NIC driver upgrade failed", "upgrade-done", "log of the mofed pod")
    # the old driver works until its pod is replaced, so no other signal tells; the label stays on nodes of a driver given up
    if want.mofed and node.upgrade_state not in ("", "upgrade-done"):
        step = "see which pods keep the node from being drained, and the log of the network operator"
        return unknown(FailureClass.RUNTIME, f"NIC driver upgrade is at {node.upgrade_state}", "upgrade-done", step)
    # without the operator's driver the label is absent, and that is right
    if node.mofed_wait == "true" or (want.mofed and node.mofed_wait != "false"):
        seen = f"label operator.mofed.wait is {node.mofed_wait or 'absent'}: the NIC driver is not ready"
        return unknown(FailureClass.RUNTIME, seen, "false", "log of the mofed pod: kernel headers, modules in use")
    if want.sriov and node.sync != "Succeeded":
        seen = f"SR-IOV sync is {node.sync or 'unknown'} {node.sync_error}".rstrip()
        step = "SR-IOV and IOMMU in the firmware; log of sriov-network-config-daemon"
        return (fail if node.sync == "Failed" else unknown)(FailureClass.RUNTIME, seen, "Succeeded", step)
    if node.allocatable < want.count or node.allocatable != node.capacity:
        seen = f"{want.resource}: {node.allocatable} of {node.capacity} allocatable"
        expected = f"at least {want.count}, all allocatable"
        step = "compare fabric.device_ids and interfaces with lspci -nn -d 15b3: on the node; log of the device plugin"
        if node.capacity:
            return fail(FailureClass.HARDWARE, seen, expected, step)
        return unknown(FailureClass.HEALTH, seen, expected, step)
    if node.unschedulable:
        return unknown(FailureClass.HEALTH, "node is cordoned", "schedulable", f"kubectl uncordon {node.name}")
    return None
