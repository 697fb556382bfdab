"""Rules about the pods of functional checks, above all for pods that left no report; each gate judges the reports itself."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from steps.contract.host_ranges import fold
from steps.contract.objects.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.stages.shared import reader_kubelet
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, unknown

HEAD = 80
"""Characters of a line by which it is found again among the events that it was read from."""


def by_node(pods: Iterable[CheckPod]) -> Mapping[str, CheckPod]:
    """Return node → check pod. Of two pods on a node, the one with a report counts: a Job may have replaced an evicted pod."""
    best: dict[str, CheckPod] = {}
    for pod in pods:
        # a Job replaces an evicted pod: the report of the earlier pod still counts
        if pod.node and (pod.node not in best or pod.report):
            best[pod.node] = pod
    return best


def uuids(pod: CheckPod) -> tuple[str, ...]:
    """Return the UUIDs of the devices that a pod saw, from its report; empty if it reported none."""
    reported = pod.report.get("uuids")
    return tuple(map(str, reported)) if isinstance(reported, list) else ()


class WaitReason(NamedTuple):
    """Why a pod waits or failed: the words for it, and what a person does about it if the cause is known."""

    text: str
    next_step: str = ""
    failure_class: FailureClass = FailureClass.RUNTIME


def why(pod: CheckPod) -> WaitReason:
    """Return why a pod left no report: the first cause in its state and its Warning events, else its newest event, quoted."""
    state = f"{pod.reason} {pod.message}".strip()
    cause = reader_kubelet.cause((state, *pod.events))
    newest = pod.events[-1] if pod.events else ""
    # the line that names the cause is quoted; an older event can name it while the newest only repeats that the pod waits
    quoted = next((event for event in pod.events if cause is not None and event.startswith(cause.line[:HEAD])), newest)
    text = "; ".join(filter(None, (state, f"event {quoted}" if quoted and quoted not in state else "")))
    return WaitReason(text, cause.next_step, cause.failure_class) if cause else WaitReason(text)


def unplaced(pods: Iterable[CheckPod]) -> tuple[CheckPod, ...]:
    """Return the pods of a check that have no node yet; a gate asks once for all its nodes."""
    return tuple(pod for pod in pods if not pod.node)


def silent(pod: CheckPod | None, pending: Iterable[CheckPod], what: str, namespace: str = CHECK_NAMESPACE) -> Finding:
    """Return the finding on a check, of a node or of all, that left no report. `pending` are its pods that have no node yet."""
    if pod is None:
        waiting = next((candidate for candidate in pending if not candidate.node), None)
        state = f"runs here; {waiting.name}: {why(waiting).text}".rstrip() if waiting else "ran here"
        step = "see what keeps the pod from being scheduled: allocatable resources, taints, quota"
        return unknown(FailureClass.RUNTIME, f"no pod of the check {state}", what, step)
    # a pod in a crash loop or without an image leaves no report either, however long the gate waits
    make = fail if pod.ended or pod.reason in RUNTIME_REASONS else unknown
    wait = why(pod)
    seen = f"pod {pod.name} is {pod.phase or 'not started'} without a report {wait.text}".rstrip()
    step = wait.next_step or f"kubectl -n {namespace} describe pod {pod.name} (its log is in the record)"
    return make(wait.failure_class, seen, what, step)


def first_silent(nodes: Iterable[str], pods: Iterable[CheckPod], what: str) -> Finding | None:
    """Return the finding on the nodes whose check left no report, with the reason of the first one; None if all have reported."""
    pods = tuple(pods)
    known = by_node(pods)
    names = [node for node in nodes if node not in known or not known[node].report]
    if not names:
        return None
    finding = silent(known.get(names[0]), unplaced(pods), what)
    return msgspec.structs.replace(finding, seen=f"{fold(names)}: {finding.seen}")


def conclude(verdict: Verdict) -> Verdict:
    """Return the verdict as final if every node has reported: a check runs once, so waiting cannot change its result."""
    open_rows = any(row.status is Status.INCONCLUSIVE for row in verdict.nodes)
    return verdict if open_rows or not verdict.nodes else msgspec.structs.replace(verdict, final=not verdict.is_pass)


def wrong_indexes(pods: Iterable[CheckPod], count: int) -> Finding | None:
    """Return the finding that the pods of an indexed check do not have the indexes 0 to `count` - 1, each once; else None."""
    indexes = sorted(pod.index for pod in pods)
    if indexes == list(range(count)):
        return None
    listed = ", ".join(map(str, indexes)) or "none"
    step = "see if another Job has pods with the label of this check"
    return unknown(FailureClass.RUNTIME, f"the pods of the check have the indexes {listed}", f"0 to {count - 1}, each once", step)
