"""Check `dns`: on every node a pod resolved the API's name and reached a pod of another node.

The pods form a ring: each asks the next one. Where asking fails, the two ends are told apart: a node that its own neighbour did
reach, and whose target reaches nobody itself, is not the one to blame.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.contract.stages.rke2 import FunctionalExpectation, FunctionalObservation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates.checks import by_node, silent

GATE = "rke2/functional"


class Ring(Struct, frozen=True):
    """The ring as its pods saw it: the pod of each node, the node of each index, and the nodes that somebody reached."""

    pods: Mapping[str, CheckPod]
    places: Mapping[int, str]
    reached: frozenset[str]
    size: int

    def target(self, pod: CheckPod) -> str:
        """The node that a pod asked: as it answered, else where the pod of that index runs."""
        index = pod.report.get("next")
        return str(pod.report.get("peer", "")) or (self.places.get(index, "") if isinstance(index, int) else "")

    def reaches(self, node: str) -> bool:
        """Whether a node's pod reached its own target."""
        pod = self.pods.get(node)
        return pod is not None and pod.report.get("reached") is True


def judge(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """One verdict for each node; final once every expected node's pod has ended."""
    found = by_node(seen.pods)
    places = {pod.index: pod.node for pod in seen.pods if pod.node}
    bare = Ring(found, places, frozenset(), len(want.nodes))
    reached = frozenset(bare.target(pod) for pod in found.values() if pod.report.get("reached") is True)
    ring = Ring(found, places, reached, len(want.nodes))
    rows = [_row(name, ring, seen.pods) for name in want.nodes]
    verdict = of_nodes(GATE, rows, what="resolved the API's name and reached a pod on another node")
    ended = all(name in found and found[name].ended for name in want.nodes)
    return msgspec.structs.replace(verdict, final=True) if ended and not verdict.is_pass else verdict


def _row(name: str, ring: Ring, pods: tuple[CheckPod, ...]) -> NodeVerdict:
    pod = ring.pods.get(name)
    if pod is None or not pod.report:
        return silent(name, pod, pods, "what a pod on this node resolved and reached")
    resolved, service, said = (str(pod.report.get(key, "")) for key in ("resolved", "service", "error"))
    if not resolved or resolved != service:
        seen = f"kubernetes.default resolves to {resolved or 'nothing'}{f' ({said})' if said else ''}"
        step = f"see CoreDNS, and whether {name} lets UDP 53 and 8472 (Canal's VXLAN) through"
        return _node(name, Status.FAIL, seen, f"the API's service address {service}".rstrip(), step)
    if ring.size == 1:
        return NodeVerdict(node=name, status=Status.PASS, seen=f"resolved {resolved}; there is no other node to reach")
    return _reached(name, pod, ring, said)


def _reached(name: str, pod: CheckPod, ring: Ring, said: str) -> NodeVerdict:
    target = ring.target(pod)
    if target == name:
        step = "run the check again: its pods must be on different nodes"
        return _node(name, Status.INCONCLUSIVE, f"the other pod ran on {name} too", "a pod on another node", step)
    if pod.report.get("reached") is True and target:
        return NodeVerdict(node=name, status=Status.PASS, seen=f"resolved the API's name, reached a pod on {target}")
    if name in ring.reached and not ring.reaches(target):
        return NodeVerdict(node=name, status=Status.PASS, seen=f"was reached; {target or 'its target'} reaches nobody itself")
    if pod.report.get("reached") is True:
        return _node(name, Status.INCONCLUSIVE, "a pod of unknown place answered", "the name of its node", "run the check again")
    seen = f"the pod on {target or 'another node'} was not reached{f': {said}' if said else ''}"
    step = f"see routes, MTU and firewall between {name} and {target or 'it'} (UDP 8472 with Canal)"
    return _node(name, Status.FAIL, seen, "an answer from it", step)


def _node(name: str, status: Status, seen: str, expected: str, step: str) -> NodeVerdict:
    failure_class = FailureClass.DEPENDENCY if status is Status.FAIL else FailureClass.RUNTIME
    return NodeVerdict(node=name, status=status, seen=seen, expected=expected, next_step=step, failure_class=failure_class)
