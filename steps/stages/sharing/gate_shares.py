"""Judges checks `sharing` and `sharing-limit`: pods run side by side on every node, and no unit of a GPU is given out twice."""

from collections.abc import Iterator

from steps.contract.objects.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes, passed
from steps.stages.shared import gate_checks
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.shared.gate_checks import uuids, why
from steps.stages.sharing.contract import FunctionalExpectation, FunctionalObservation, LimitExpectation

PAIRS, LIMIT = "sharing/functional", "sharing/limit"
FIRST, SECOND, TWO = "sharing-first", "sharing-second", "sharing-two"
REFUSED = "UnexpectedAdmissionError"
Roles = dict[str, CheckPod]
"""The pods of one node by role; of two pods with one role, the one with a report."""


def judge_pairs(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Return the verdict on every node. A refusal that did not happen comes first: two shares for one pod are wrong in any case."""
    by_node: dict[str, Roles] = {}
    for pod in seen.pods:
        role = next((role for role in (FIRST, SECOND, TWO) if pod.name.startswith(role)), "")
        roles = by_node.setdefault(pod.node, {})
        # a report without a node proves nothing of any node
        if role and (role not in roles or pod.report) and (pod.node or not pod.report):
            roles[role] = pod
    others = frozenset(want.others)
    single = {name for name in want.nodes if want.pair == (name in others)}
    rows = [_node(name, by_node.get(name, {}), by_node.get("", {}), want, name in single) for name in want.nodes]
    return gate_checks.conclude(of_nodes(PAIRS, rows, what=_summary(want, len(single))))


def _summary(want: FunctionalExpectation, single: int) -> str:
    """Return the words for nodes that pass, of which `single` have one unit."""
    devices = "two devices" if want.exclusive else "shares of their GPUs"
    refused = ", and a request for two was refused" if want.refuse_two else ""
    alone = "one pod ran a CUDA kernel on the only device"
    if single == len(want.nodes):
        return alone
    text = f"two pods ran CUDA kernels at the same time on {devices}{refused}"
    return f"{text}; on {single} with one unit {alone}" if single else text


def _node(name: str, roles: Roles, unplaced: Roles, want: FunctionalExpectation, single: bool) -> NodeVerdict:
    if single:
        alone = next(_alone(roles.get(FIRST) or unplaced.get(FIRST)), None)
        return node_verdict(name, alone, "one pod held the only device")
    finding = next(_refusal(roles.get(TWO) or unplaced.get(TWO), want), None) or next(_pair(roles, unplaced, want), None)
    shared = "" if finding else "different devices" if _are_apart(roles) else "one device"
    return node_verdict(name, finding, f"two pods held {shared} at the same time")


def _are_apart(roles: Roles) -> bool:
    return set(uuids(roles[FIRST])).isdisjoint(uuids(roles[SECOND]))


def _refusal(pod: CheckPod | None, want: FunctionalExpectation) -> Iterator[Finding]:
    # the kubelet refuses at admission, so the pod is Failed and never retried
    if not want.refuse_two or (pod is not None and pod.phase == "Failed" and pod.reason == REFUSED):
        return
    expected = f"the kubelet to refuse it ({REFUSED})"
    if pod is not None and (pod.report or pod.phase in ("Running", "Succeeded")):
        step = "set sharing.fail_requests_greater_than_one: two shares may be two slices of one GPU"
        yield fail(FailureClass.COMPARISON, "a pod that asked for two shares runs", expected, step, final=True)
        return
    seen = "no pod that asks for two shares" if pod is None else f"{pod.name} is {pod.phase or 'unknown'} {why(pod).text}"
    yield _open(seen.rstrip(), expected, f"kubectl -n {CHECK_NAMESPACE} describe pod {pod.name if pod else TWO}")


def _pair(roles: Roles, unplaced: Roles, want: FunctionalExpectation) -> Iterator[Finding]:
    pods = [roles.get(role) or unplaced.get(role) for role in (FIRST, SECOND)]
    for role, pod in zip((FIRST, SECOND), pods, strict=True):
        yield from _single(role, pod)
    first, second = (pod for pod in pods if pod is not None)
    # one after the other, both pods would get the same whole GPU and prove nothing
    if not _together(first, second):
        step = "run the check again: a slow start of the second pod let the first one end"
        yield _open("the two pods did not run at the same time", "both at once, so that devices are held side by side", step)
    common = set(uuids(first)) & set(uuids(second))
    if want.exclusive and common:
        problem = f"two pods see the same device {min(common)}"
        step = "see who else advertises or injects GPUs there: a second device plugin, or NVIDIA_VISIBLE_DEVICES=all"
        yield fail(FailureClass.COMPARISON, problem, f"a device for each pod (sharing mode {want.mode.value})", step, final=True)


def _alone(pod: CheckPod | None) -> Iterator[Finding]:
    """Yield a problem unless the only pod of a node with one unit ran there for a while, as its report tells."""
    yield from _single(FIRST, pod)
    if pod is not None and _span(pod) is None:
        yield _open(f"the report of {pod.name} has no times", "begin and end", "run the check again with its own script")


def _single(role: str, pod: CheckPod | None) -> Iterator[Finding]:
    """Yield a problem unless the pod with one unit ran, saw exactly one device, and ran a CUDA kernel on it."""
    if pod is None or not pod.report:
        state = f"{pod.name} is {pod.phase or 'unknown'} {why(pod).text}".rstrip() if pod else f"no pod {role}"
        step = f"kubectl -n {CHECK_NAMESPACE} describe pod {pod.name if pod else role}"
        if pod is not None and (pod.ended or pod.reason in RUNTIME_REASONS - {"Unschedulable"}):
            yield fail(FailureClass.RUNTIME, state, "a pod with one unit to run", step, final=pod.ended)
        else:
            yield _open(state, "a report of the pod", step)
    elif len(uuids(pod)) != 1:
        problem = f"{pod.name} asked for one unit and sees {len(uuids(pod))} devices"
        step = "see the container toolkit: CDI injects what was allocated, NVIDIA_VISIBLE_DEVICES=all injects every GPU"
        yield fail(FailureClass.COMPARISON, problem, "one device", step, final=True)
    else:
        yield from _kernel(pod)


def _kernel(pod: CheckPod) -> Iterator[Finding]:
    """Yield a problem unless the report says that a CUDA kernel ran: `nvidia-smi` lists devices that no program can use."""
    expected, step = "a CUDA kernel to run on its device", f"log of {pod.name} (it is in the record); with MPS its control daemon's"
    if "passed" not in pod.report:
        yield _open(f"{pod.name} does not say if a CUDA kernel ran", expected, "run the check again with its own script")
    elif pod.report["passed"] != 1:
        problem = f"{pod.name} ran no CUDA kernel on its device: {pod.report.get('error') or 'it does not say why'}"
        yield fail(FailureClass.RUNTIME, problem[:400], expected, step, final=True)


def _span(pod: CheckPod) -> tuple[float, float] | None:
    begin, end = pod.report.get("begin"), pod.report.get("end")
    return (float(begin), float(end)) if isinstance(begin, int | float) and isinstance(end, int | float) else None


def _together(first: CheckPod, second: CheckPod) -> bool:
    spans = [span for pod in (first, second) if (span := _span(pod)) is not None]
    return len(spans) == 2 and max(begin for begin, _ in spans) <= min(end for _, end in spans)


# ---- one pod more than a node has units --------------------------------------------------------------------------------------


def judge_limit(seen: FunctionalObservation, want: LimitExpectation) -> Verdict:
    """Return the verdict on the pods that together ask one node for one unit more than it has."""
    if finding := next(_limit_findings(seen, want), None):
        return finding.verdict(LIMIT)
    node, pods = next((pod.node for pod in seen.pods if pod.node), ""), want.units // want.each
    held = "one pod held the only unit" if want.units == 1 else f"{pods} pods held the {want.units} units"
    return passed(LIMIT, f"{held} of {node}, and one more waited until a pod had ended")


def _limit_findings(seen: FunctionalObservation, want: LimitExpectation) -> Iterator[Finding]:
    room, pods = want.units // want.each, seen.pods
    count = room + 1
    expected = f"{count} pods on one node with {want.units} units, one of them later"
    describe = f"kubectl -n {CHECK_NAMESPACE} describe pods"
    failed = next((pod for pod in pods if pod.ended and not pod.report), None)
    if failed is not None:
        yield fail(
            FailureClass.RUNTIME, f"{failed.name} ended without a report: {why(failed).text}", expected, describe, final=True
        )
    reported = [pod for pod in pods if pod.report]
    if len(reported) < count:
        waiting = next((pod for pod in pods if not pod.report), None)
        reason = f"; {waiting.name}: {why(waiting).text or waiting.phase}" if waiting else ""
        yield _open(f"{len(reported)} of {count} pods have reported{reason}", expected, describe)
    nodes = sorted({pod.node for pod in reported})
    if len(nodes) != 1:
        yield _open(f"the pods ran on {', '.join(nodes)}", expected, "run the check again: its pods belong on one node")
    spans = [span for pod in reported if (span := _span(pod)) is not None]
    if len(spans) < count:
        yield _open(f"{count - len(spans)} reports have no times", expected, "run the check again with its own script")
    # a unit that is given back and taken within one second of the clock is no overlap
    most = max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)
    if most > room:
        step = "see who else advertises the GPUs of this node, and the device plugin's log there"
        problem = f"{most} pods held {_amount(want.each)} each of {nodes[0]} at the same time"
        yield fail(FailureClass.COMPARISON, problem, f"at most {room} (mode {want.mode.value})", step, final=True)
    elif most < room:
        step = "run the check again: pods started too slowly to run at the same time"
        yield _open(f"at most {most} pods ran at the same time on {nodes[0]}", f"{room} at once, and the last one later", step)
    for pod in reported:
        yield from _single(LIMIT, pod)


def _amount(units: int) -> str:
    return "one unit" if units == 1 else f"{units} units"


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.RUNTIME, seen, expected, next_step)
