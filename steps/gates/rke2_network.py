"""Check `dns`: on every node a pod resolved the API's name and reached a pod of another node."""

import msgspec

from steps.contract.checks import CheckPod
from steps.contract.stages.rke2 import FunctionalExpectation, FunctionalObservation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates.checks import by_node, silent

GATE = "rke2/functional"


def judge(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """One verdict for each node; final once every expected node's pod has ended."""
    found = by_node(seen.pods)
    places = {pod.index: pod.node for pod in seen.pods if pod.node}
    rows = [_row(name, found.get(name), seen.pods, places, alone=len(want.nodes) == 1) for name in want.nodes]
    verdict = of_nodes(GATE, rows, what="resolved the API's name and reached a pod on another node")
    ended = all(name in found and found[name].ended for name in want.nodes)
    return msgspec.structs.replace(verdict, final=True) if ended and not verdict.is_pass else verdict


def _row(name: str, pod: CheckPod | None, pods: tuple[CheckPod, ...], places: dict[int, str], *, alone: bool) -> NodeVerdict:
    if pod is None or not pod.report:
        return silent(name, pod, pods, "what a pod on this node resolved and reached")
    report = pod.report
    resolved, service, said = (str(report.get(key, "")) for key in ("resolved", "service", "error"))
    if not resolved or resolved != service:
        seen = f"kubernetes.default resolves to {resolved or 'nothing'}{f' ({said})' if said else ''}"
        step = f"see CoreDNS, and whether {name} lets UDP 53 and 8472 (Canal's VXLAN) through"
        return _node(name, Status.FAIL, seen, f"the API's service address {service}".rstrip(), step)
    if alone:
        return NodeVerdict(node=name, status=Status.PASS, seen=f"resolved {resolved}; there is no other node to reach")
    return _reached(name, pod, str(report.get("peer", "")) or places.get(_index(report.get("next")), ""), said)


def _reached(name: str, pod: CheckPod, peer: str, said: str) -> NodeVerdict:
    if peer == name:
        step = "run the check again: its pods must be on different nodes"
        return _node(name, Status.INCONCLUSIVE, f"the other pod ran on {name} too", "a pod on another node", step)
    if pod.report.get("reached") is not True:
        seen = f"the pod on {peer or 'another node'} was not reached{f': {said}' if said else ''}"
        step = f"see routes, MTU and firewall between {name} and {peer or 'it'} (UDP 8472 with Canal)"
        return _node(name, Status.FAIL, seen, "an answer from it", step)
    if not peer:
        return _node(name, Status.INCONCLUSIVE, "a pod of unknown place answered", "the name of its node", "run the check again")
    return NodeVerdict(node=name, status=Status.PASS, seen=f"resolved the API's name, reached a pod on {peer}")


def _index(value: object) -> int:
    return value if isinstance(value, int) else -1


def _node(name: str, status: Status, seen: str, expected: str, step: str) -> NodeVerdict:
    failure_class = FailureClass.DEPENDENCY if status is Status.FAIL else FailureClass.RUNTIME
    return NodeVerdict(node=name, status=status, seen=seen, expected=expected, next_step=step, failure_class=failure_class)
