"""Gates of network_operator: required states are ready and not ignored, one NFD, one Multus, and bandwidth between neighbours.

See `steps/docs/facts/gpu.md`, Network Operator.
"""

from steps.contract.charts import ChartsExpectation, ChartsObservation, Workload
from steps.contract.plain import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, inconclusive, of_nodes, passed
from steps.stages.network_operator import gate_ring
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
from steps.stages.shared import gate_charts as releases
from steps.stages.shared import gate_checks
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
    return releases.with_charts(CHARTS, seen, want)


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check one NFD, one Multus, every wanted state with its images, networks attached, and addresses handed out."""
    return (
        one_nfd(CONTROL, seen.nfd)
        or _one_multus(seen, want)
        or _policy(seen, want)
        or _networks(seen, want)
        or _pools(seen, want)
        or passed(CONTROL, f"{count(len(want.states), 'state')} ready: {', '.join(want.states)}")
    )


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that every expected node has its NICs and their driver, and advertises the RDMA resource."""
    by_name = {node.name: node for node in seen.nodes}
    rows = [_node(name, by_name.get(name), want) for name in want.nodes]
    return of_nodes(NODES, rows, what=f"{want.resource} allocatable")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that neighbours in a ring reach the floor on every rail. A node fails if all pairs that it took part in fail."""
    rows, notes = gate_ring.judge_ring(seen, want)
    what = f"{want.rails} rails at {want.floor:g} Gbit/s or more to a neighbour"
    return gate_checks.conclude(of_nodes(FUNCTIONAL, rows, what=what, notes=notes))


def _one_multus(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    if len(seen.multus) > 1:
        return failed(
            CONTROL,
            FailureClass.DEPENDENCY,
            seen=f"{len(seen.multus)} Multus: {', '.join(seen.multus)}",
            expected="exactly one",
            next_step="keep RKE2's or the operator's, not both: they fight over /etc/cni/net.d",
        )
    if want.multus and not seen.multus:
        return inconclusive(
            CONTROL,
            seen="no Multus DaemonSet",
            expected="exactly one",
            next_step="see fabric.multus and rke2.cni in the spec",
            failure_class=FailureClass.DEPENDENCY,
        )
    return None


def _policy(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    policy = next((candidate for candidate in seen.policies if candidate.name == POLICY), None)
    if policy is None:
        return inconclusive(
            CONTROL,
            seen=f"no NicClusterPolicy {POLICY} (there are: {', '.join(candidate.name for candidate in seen.policies) or 'none'})",
            expected=f"one named {POLICY}, the only name that is reconciled",
            next_step="apply this stage again",
            failure_class=FailureClass.APPLY,
        )
    # the status has neither times nor a generation, so only waiting shows that it is about the newest spec
    if not policy.changed or seen.now - policy.changed < SETTLE_SECONDS:
        ago = f"{seen.now - policy.changed:.0f} s ago" if policy.changed else "at a time that it does not tell,"
        return inconclusive(
            CONTROL,
            seen=f"{POLICY} changed {ago} and says {policy.state or 'nothing'}",
            expected=f"its status {SETTLE_SECONDS:.0f} s after the change",
            next_step="wait: the status does not tell which spec it is about",
        )
    problems = (_state(name, tag, policy, seen, want) for name, tag in want.states.items())
    return next((problem for problem in problems if problem is not None), None) or _overall(policy, want)


def _state(name: str, tag: str, policy: NicPolicy, seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    applied = next((one for one in policy.applied if one.name == name), None)
    state = applied.state if applied else "not listed"
    daemons = [one for one in seen.operands if one.name.startswith(OPERANDS.get(name, ())) and one.kind == "DaemonSet"]
    # the operator wants every node; the quorum lets some go
    if state == "ready" or (state == "notReady" and serves(daemons, want.least)):
        return _vacuous(name, daemons, seen, want) or _tag(name, tag, daemons)
    message = f"{name} is {state} {applied.message if applied else ''}".rstrip()
    # `ignore` means that the part is missing in the spec in the cluster, although the plan has it
    if state == "ignore":
        return failed(
            CONTROL,
            FailureClass.COMPARISON,
            seen=message,
            expected="ready: the spec asks for it",
            next_step=f"compare the spec of NicClusterPolicy {POLICY} in the cluster with the plan: this part is missing there",
        )
    if state == "error":
        return failed(CONTROL, FailureClass.APPLY, seen=message, expected="ready", next_step="read the log of the network operator")
    late = next((one for one in daemons if not one.settled()), None)
    if late is not None and seen.trouble:
        return releases.judge_unsettled(CONTROL, late, seen.trouble, "nvidia-network-operator")
    return inconclusive(
        CONTROL,
        seen=f"{message}; {_counts(daemons)}",
        expected=f"ready, or its DaemonSet ready on {want.least} nodes",
        next_step="kubectl -n nvidia-network-operator get pods",
    )


def _counts(daemons: list[Workload]) -> str:
    return ", ".join(f"{daemon.name} {daemon.ready} of {daemon.desired}" for daemon in daemons) or "no DaemonSet of it"


def _vacuous(name: str, daemons: list[Workload], seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    """Return a verdict if a state is ready although its DaemonSet serves too few nodes; it is also ready if it selects no node."""
    if not OPERANDS.get(name) or serves(daemons, want.least):
        return None
    worst = next((daemon for daemon in daemons if not daemon.settled()), None)
    if worst is not None and seen.trouble:
        return releases.judge_unsettled(CONTROL, worst, seen.trouble, "nvidia-network-operator")
    return inconclusive(
        CONTROL,
        seen=f"{name} says ready with {_counts(daemons)}",
        expected=f"ready on at least {want.least} nodes",
        next_step="see the label feature.node.kubernetes.io/pci-15b3.present, which selects the nodes",
        failure_class=FailureClass.DEPENDENCY,
    )


def _tag(name: str, tag: str, daemons: list[Workload]) -> Verdict | None:
    stale = next((daemon for daemon in daemons if tag and not daemon.image.rpartition(":")[2].startswith(tag)), None)
    if stale is None:
        return None
    return inconclusive(
        CONTROL,
        seen=f"{name} says ready, but {stale.name} runs {stale.image.rpartition(':')[2] or 'no image'}",
        expected=tag,
        next_step="the operator has not acted on the new spec: read its log",
        failure_class=FailureClass.COMPARISON,
    )


def _overall(policy: NicPolicy, want: ControlExpectation) -> Verdict | None:
    others = [applied for applied in policy.applied if applied.name not in want.states and applied.state in ("notReady", "error")]
    if policy.state == "error" or others:
        reason = f"{others[0].name} is {others[0].state} {others[0].message}" if others else policy.reason
        return failed(
            CONTROL,
            FailureClass.APPLY if policy.state == "error" else FailureClass.HEALTH,
            seen=f"{POLICY} is {policy.state}: {reason}".rstrip(),
            expected="state ready, and no part that the plan does not know",
            next_step="find who else writes this NicClusterPolicy",
        )
    if policy.state == "ready" or (policy.state == "notReady" and any(applied.state == "notReady" for applied in policy.applied)):
        return None
    return inconclusive(
        CONTROL, seen=f"{POLICY} is {policy.state or 'without a state'}", expected="ready", next_step="read the operator's log"
    )


def _networks(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    by_name = {f"{network_seen.kind}/{network_seen.name}": network_seen for network_seen in seen.networks}
    for name in want.networks:
        network = by_name.get(name)
        sriov = name.startswith("Sriov")  # the SR-IOV operator writes no state; the attachment is all it makes
        if network is not None and network.attached and (network.state == "ready" or sriov):
            continue
        state = (
            "does not exist"
            if network is None
            else f"is {network.state or 'without a state'}, {'' if network.attached else 'not '}attached"
        )
        return inconclusive(
            CONTROL,
            seen=f"{name} {state} {network.reason if network else ''}".rstrip(),
            expected="ready, with its NetworkAttachmentDefinition",
            next_step="see the network's namespace and master interface",
            failure_class=FailureClass.APPLY,
        )
    return None


def _pools(seen: ControlObservation, want: ControlExpectation) -> Verdict | None:
    by_name = {pool.name: pool for pool in seen.pools}
    for name in want.pools:
        pool = by_name.get(name)
        served = set(pool.nodes) & set(want.nodes) if pool else set()
        if pool is None or len(served) < want.least:
            return inconclusive(
                CONTROL,
                seen=f"address pool {name} {'does not exist' if pool is None else f'has blocks for {len(served)} expected nodes'}",
                expected=f"blocks for at least {want.least} nodes",
                next_step="see fabric.ip_pool: subnet ÷ per_node_block must be enough for all nodes; log of nv-ipam-controller",
                failure_class=FailureClass.INPUT,
            )
    return None


def _node(name: str, node: FabricNode | None, want: NodesExpectation) -> NodeVerdict:
    if node is None:
        row = ("no such node in the cluster", "a registered node", "see stage rke2", FailureClass.DEPENDENCY, Status.FAIL)
    else:
        problem = _node_problem(node, want)
        if problem is None:
            return NodeVerdict(node=name, status=Status.PASS, seen=f"{want.resource} {node.allocatable}")
        row = problem
    seen, expected, step, kind, status = row
    return NodeVerdict(node=name, status=status, seen=seen, expected=expected, next_step=step, failure_class=kind)


def _node_problem(node: FabricNode, want: NodesExpectation) -> tuple[str, str, str, FailureClass, Status] | None:
    """Return (seen, expected, next step, class, status) of the first problem, in the order in which parts come up; else None."""
    wait, bad = Status.INCONCLUSIVE, Status.FAIL
    if not node.ready:
        return "node is not Ready", "Ready", "a NIC driver may have taken the primary interface away", FailureClass.HEALTH, wait
    if not node.nic:
        label = "label feature.node.kubernetes.io/pci-15b3.present"
        return "NFD found no NVIDIA NIC", label, "lspci -d 15b3: on the node", FailureClass.HARDWARE, wait
    if node.upgrade_state == "upgrade-failed":
        return "NIC driver upgrade failed", "upgrade-done", "log of the mofed pod", FailureClass.RUNTIME, bad
    # without the operator's driver the label is absent, and that is right
    if node.mofed_wait == "true" or (want.mofed and node.mofed_wait != "false"):
        seen = f"label operator.mofed.wait is {node.mofed_wait or 'absent'}: the NIC driver is not ready"
        return seen, "false", "log of the mofed pod: kernel headers, modules in use", FailureClass.RUNTIME, wait
    if want.sriov and node.sync != "Succeeded":
        seen = f"SR-IOV sync is {node.sync or 'unknown'} {node.sync_error}".rstrip()
        status = bad if node.sync == "Failed" else wait
        return (
            seen,
            "Succeeded",
            "SR-IOV and IOMMU in the firmware; log of sriov-network-config-daemon",
            FailureClass.RUNTIME,
            status,
        )
    if node.allocatable < want.count or node.allocatable != node.capacity:
        seen = f"{want.resource}: {node.allocatable} of {node.capacity} allocatable"
        step = "compare fabric.device_ids and interfaces with lspci -nn -d 15b3: on the node; log of the device plugin"
        some = FailureClass.HARDWARE if node.capacity else FailureClass.HEALTH
        return seen, f"at least {want.count}, all allocatable", step, some, bad if node.capacity else wait
    if node.unschedulable:
        return "node is cordoned", "schedulable", f"kubectl uncordon {node.name}", FailureClass.HEALTH, wait
    return None
