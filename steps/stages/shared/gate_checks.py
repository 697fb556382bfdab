"""Judges check pods that left no report; each gate judges the reports itself."""

from collections.abc import Iterable, Mapping

import msgspec

from steps.contract.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict
from steps.stages.shared.causes import RUNTIME_REASONS


def by_node(pods: Iterable[CheckPod]) -> Mapping[str, CheckPod]:
    """Return one pod for each node; a pod with a report wins over a pod without one, which was replaced."""
    best: dict[str, CheckPod] = {}
    for pod in pods:
        # a Job replaces an evicted pod: the report of the earlier pod still counts
        if pod.node and (pod.node not in best or pod.report):
            best[pod.node] = pod
    return best


def silent(node: str, pod: CheckPod | None, pending: Iterable[CheckPod], what: str) -> NodeVerdict:
    """Return the verdict on a node whose check left no report. `pending` are pods of the check that have no node yet."""
    if pod is None:
        waiting = next((candidate for candidate in pending if not candidate.node), None)
        state = (
            f"no pod of the check runs here; {waiting.name}: {waiting.reason} {waiting.message}"
            if waiting
            else "no pod of the check ran here"
        )
        return NodeVerdict(
            node=node,
            status=Status.INCONCLUSIVE,
            seen=state.strip(),
            expected=what,
            next_step="see what keeps the pod from being scheduled: allocatable resources, taints, quota",
            failure_class=FailureClass.RUNTIME,
        )
    # a pod in a crash loop or without an image leaves no report either, however long the gate waits
    over = pod.ended or pod.reason in RUNTIME_REASONS
    return NodeVerdict(
        node=node,
        status=Status.FAIL if over else Status.INCONCLUSIVE,
        seen=f"pod {pod.name} is {pod.phase or 'not started'} without a report {pod.reason} {pod.message}".rstrip(),
        expected=what,
        next_step=f"kubectl -n {CHECK_NAMESPACE} describe pod {pod.name} (its log is in the record)",
        failure_class=FailureClass.RUNTIME,
    )


def conclude(verdict: Verdict) -> Verdict:
    """Return the verdict as final if every node has reported: a check runs once, so waiting cannot change its result."""
    open_rows = any(row.status is Status.INCONCLUSIVE for row in verdict.nodes)
    return verdict if open_rows or not verdict.nodes else msgspec.structs.replace(verdict, final=not verdict.is_pass)
