"""Gates of gang: queues are active, nodes belong to them, an oversized gang binds no pod, and one that fits runs as a whole."""

from collections.abc import Iterator
from itertools import chain

from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes, passed
from steps.stages.gang import gate_fit, gate_oversize, gate_parts, gate_quota
from steps.stages.gang.contract import (
    ControlExpectation,
    ControlObservation,
    FitExpectation,
    GangObservation,
    NodesExpectation,
    NodesObservation,
    OversizeExpectation,
    SchedulableNode,
)
from steps.stages.shared import gate_charts
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

CONTROL = "gang/control"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check releases, Deployments, second schedulers, flavors, queues and quotas; the first problem is the verdict."""
    releases = gate_charts.problem(seen.releases, want.releases, seen.root_app, want.root_app)
    schedulers = chain(_deployments(seen, want), gate_parts.judge_parts(seen, want))
    findings = chain(schedulers, _flavors(seen, want), _queues(seen, want), gate_quota.judge_quotas(seen, want))
    if first := releases or next(findings, None):
        return first.verdict(CONTROL)
    summary = f"Deployments ready: {len(want.deployments)}"
    return passed(CONTROL, f"{summary}, queues active: {len(want.queues)}" if want.queues else summary)


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check that every node advertises the gang's resource and, with Kueue, has the labels of a flavor, so that quotas count it."""
    by_name = {node.name: node for node in seen.nodes}
    rows = [_node(name, by_name.get(name), want) for name in want.nodes]
    return of_nodes("gang/nodes", rows, what=f"schedulable with {want.resource}{' in a flavor' if want.flavors else ''}")


def oversize(seen: GangObservation, want: OversizeExpectation) -> Verdict:
    """Check that a gang larger than the free GPUs binds no pod, and that the scheduler reported that it considered the gang."""
    return gate_oversize.judge_oversize(seen, want)


def functional(seen: GangObservation, want: FitExpectation) -> Verdict:
    """Check that a test gang that fits is bound as a whole in time, and that every member's container ran and reported."""
    return gate_fit.judge_fit(seen, want)


def _deployments(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    by_name = {workload.name: workload for workload in seen.workloads}
    for name in want.deployments:
        namespace, _, short = name.partition("/")
        workload = by_name.get(short)
        if workload is None or not workload.desired:
            problem = f"there is no Deployment {name}" if workload is None else f"Deployment {name} is scaled to 0"
            yield _open(problem, "it, ready", f"kubectl -n {namespace} get deployments: the chart or its operator makes it")
        elif not workload.settled():
            yield gate_charts.judge_unsettled(workload, seen.trouble, namespace)


def _flavors(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    by_name = {flavor.name: flavor for flavor in seen.flavors}
    for name, labels in want.flavors.items():
        flavor = by_name.get(name)
        if flavor is None:
            yield _open(f"there is no ResourceFlavor {name}", "it", "apply this stage again")
        elif flavor.labels != labels:
            problem = f"ResourceFlavor {name} stands for {_pairs(flavor.labels)}"
            step = "find who else writes this flavor: one owner"
            yield fail(FailureClass.COMPARISON, problem, _pairs(labels), step)


def _queues(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    by_name = {queue.name: queue for queue in seen.queues}
    for name in want.queues:
        queue = by_name.get(name)
        if queue is None:
            yield _open(f"there is no {name}", "it, active", "apply this stage again, and see the scheduler's log")
        elif not queue.active:
            yield _open(f"{name} is not active: {queue.why or 'it does not say why'}", "active", "correct what it names")


def _node(name: str, node: SchedulableNode | None, want: NodesExpectation) -> NodeVerdict:
    if node is None:
        return _open("not registered", "a Node", f"see the kubelet on {name}").of_node(name)
    return node_verdict(name, next(_node_findings(node, want), None), f"{node.free} of {node.units} units free")


def _node_findings(node: SchedulableNode, want: NodesExpectation) -> Iterator[Finding]:
    if not node.schedulable:
        yield fail(FailureClass.COMPARISON, "cordoned or not Ready", "schedulable", f"kubectl describe node {node.name}")
    if not node.units:
        step = "see stage sharing: which resource the node advertises"
        yield fail(FailureClass.COMPARISON, f"advertises no {want.resource}", f"{want.resource} > 0", step)
    if want.flavors and not any(labels.items() <= node.labels.items() for labels in want.flavors.values()):
        wanted = " or ".join(_pairs(labels) for labels in want.flavors.values())
        step = "correct scheduler.flavor.node_labels: sharing changes nvidia.com/gpu.product, and quotas then match no node"
        yield fail(FailureClass.COMPARISON, f"belongs to no flavor: {_pairs(node.labels) or 'no label'}", wanted, step)


def _pairs(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.HEALTH, seen, expected, next_step)
