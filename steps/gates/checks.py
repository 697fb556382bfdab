"""What a check pod's silence means, node by node; what its report means is each gate's own matter."""

from collections.abc import Iterable, Mapping

import msgspec

from steps.contract.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict
from steps.gates.causes import RUNTIME_REASONS


def by_node(pods: Iterable[CheckPod]) -> Mapping[str, CheckPod]:
    """The pod of each node; a pod that left a report wins over one that was replaced."""
    best: dict[str, CheckPod] = {}
    for pod in pods:
        if pod.node and (pod.node not in best or pod.report):
            best[pod.node] = pod
    return best


def silent(node: str, pod: CheckPod | None, pending: Iterable[CheckPod], what: str) -> NodeVerdict:
    """The verdict on a node whose check left no report. `pending` are pods of the check that have no node yet."""
    if pod is None:
        waiting = next((one for one in pending if not one.node), None)
        said = (
            f"no pod of the check runs here; {waiting.name}: {waiting.reason} {waiting.message}"
            if waiting
            else "no pod of the check ran here"
        )
        return NodeVerdict(
            node=node,
            status=Status.INCONCLUSIVE,
            seen=said.strip(),
            expected=what,
            next_step="see what keeps the pod from being scheduled: allocatable resources, taints, quota",
            failure_class=FailureClass.RUNTIME,
        )
    over = pod.ended or pod.reason in RUNTIME_REASONS
    return NodeVerdict(
        node=node,
        status=Status.FAIL if over else Status.INCONCLUSIVE,
        seen=f"pod {pod.name} is {pod.phase or 'not started'} without a report {pod.reason} {pod.message}".rstrip(),
        expected=what,
        next_step=f"kubectl -n {CHECK_NAMESPACE} describe pod {pod.name} (its log is in the record)",
        failure_class=FailureClass.RUNTIME,
    )


def concluded(verdict: Verdict) -> Verdict:
    """The same verdict, final when every node has reported: a check runs once, so that waiting cannot change it."""
    open_rows = any(row.status is Status.INCONCLUSIVE for row in verdict.nodes)
    return verdict if open_rows or not verdict.nodes else msgspec.structs.replace(verdict, final=not verdict.is_pass)
