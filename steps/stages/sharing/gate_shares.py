"""Judges check `sharing`: two pods with one unit each run at the same time on one node, and shares cannot be added up."""

from collections.abc import Iterator

from steps.contract.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.shared.causes import RUNTIME_REASONS
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_checks import uuids, why
from steps.stages.sharing.contract import FunctionalExpectation, FunctionalObservation

GATE = "sharing/functional"
FIRST, SECOND, TWO = "sharing-first", "sharing-second", "sharing-two"
REFUSED = "UnexpectedAdmissionError"


def judge(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Return the verdict on the check. The refusal comes first, because a pod with two shares is a fail in any case."""
    by_name = {pod.name: pod for pod in seen.pods}
    problem = next(_refusal(by_name.get(TWO), want), None) or next(_pair(by_name, want), None)
    if problem is not None:
        return problem.verdict(GATE)
    first, second = by_name[FIRST], by_name[SECOND]
    devices = "different devices" if set(uuids(first)).isdisjoint(uuids(second)) else "one device"
    refused = "; a request for two was refused" if want.refuse_two else ""
    return passed(GATE, f"two pods on {first.node} held {devices} at the same time{refused}")


def _refusal(pod: CheckPod | None, want: FunctionalExpectation) -> Iterator[Finding]:
    # the kubelet refuses at admission, so the pod is Failed and never retried
    if not want.refuse_two or (pod is not None and pod.phase == "Failed" and pod.reason == REFUSED):
        return
    expected = f"the kubelet to refuse it ({REFUSED})"
    if pod is not None and (pod.report or pod.phase in ("Running", "Succeeded")):
        step = "set sharing.fail_requests_greater_than_one: two shares may be two slices of one GPU"
        problem = f"a pod that asked for two shares runs on {pod.node}"
        yield fail(FailureClass.COMPARISON, problem, expected, step, final=True)
        return
    seen = "no pod that asks for two shares" if pod is None else f"{TWO} is {pod.phase or 'unknown'} {why(pod).text}"
    yield _open(seen.rstrip(), expected, f"kubectl -n {CHECK_NAMESPACE} describe pod {TWO}")


def _pair(by_name: dict[str, CheckPod], want: FunctionalExpectation) -> Iterator[Finding]:
    pods = [by_name.get(name) for name in (FIRST, SECOND)]
    for name, pod in zip((FIRST, SECOND), pods, strict=True):
        yield from _single(name, pod)
    first, second = (pod for pod in pods if pod is not None)
    if first.node != second.node:
        step = "run the check again: it needs both pods on one node"
        yield _open(f"the pods ran on {first.node} and {second.node}", "one node", step)
    # one after the other, both pods would get the same whole GPU and prove nothing
    if not _together(first, second):
        step = "run the check again: a slow start of the second pod let the first one end"
        yield _open("the two pods did not run at the same time", "both at once, so that devices are held side by side", step)
    common = set(uuids(first)) & set(uuids(second))
    if want.exclusive and common:
        problem = f"two pods on {first.node} see the same device {min(common)}"
        step = "see who else advertises or injects GPUs there: a second device plugin, or NVIDIA_VISIBLE_DEVICES=all"
        yield fail(FailureClass.COMPARISON, problem, f"a device for each pod (sharing mode {want.mode.value})", step, final=True)


def _single(name: str, pod: CheckPod | None) -> Iterator[Finding]:
    """Yield a problem unless the pod with one unit ran and saw exactly one device."""
    if pod is None or not pod.report:
        state = f"{name} is {pod.phase or 'unknown'} {why(pod).text}".rstrip() if pod else f"no pod {name}"
        step = f"kubectl -n {CHECK_NAMESPACE} describe pod {name}"
        if pod is not None and (pod.ended or pod.reason in RUNTIME_REASONS - {"Unschedulable"}):
            yield fail(FailureClass.RUNTIME, state, "a pod with one unit to run", step, final=pod.ended)
        else:
            yield _open(state, "a report of the pod", step)
    elif len(uuids(pod)) != 1:
        problem = f"{name} on {pod.node} asked for one unit and sees {len(uuids(pod))} devices"
        step = "see the container toolkit: CDI injects what was allocated, NVIDIA_VISIBLE_DEVICES=all injects every GPU"
        yield fail(FailureClass.COMPARISON, problem, "one device", step, final=True)


def _together(first: CheckPod, second: CheckPod) -> bool:
    spans = [(pod.report.get("begin"), pod.report.get("end")) for pod in (first, second)]
    known = [(begin, end) for begin, end in spans if isinstance(begin, int | float) and isinstance(end, int | float)]
    return len(known) == 2 and max(begin for begin, _ in known) <= min(end for _, end in known)


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.RUNTIME, seen, expected, next_step)
