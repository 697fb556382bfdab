"""Check `dns`: from every node a pod resolved the API's name, reached a Service, a pod of another node, and came in by ingress.

The pods form a ring: each asks the next one. Where asking fails, the two ends are told apart: a node that its own neighbour did
reach, and whose target reaches nobody itself, is not the one to blame; nor is one that packets of full size leave, and whose target
gets none either (a smaller MTU on the way loses these without a word, and short answers come through). Causes are told apart as
well: pods that are reached while a Service's address is dead lack kube-proxy's rules, and not the pod network; a Service that
answers by its address alone lacks DNS.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.contract.stages.rke2 import FunctionalExpectation, FunctionalObservation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates.checks import by_node, silent
from steps.gates.finding import Finding, fail, unknown

GATE = "rke2/functional"


class Ring(Struct, frozen=True):
    """The ring as its pods saw it: the pod of each node, the node of each index, the nodes that somebody reached, all that are
    expected, and those that run an ingress controller (None where ingress is not asked for)."""

    pods: Mapping[str, CheckPod]
    places: Mapping[int, str]
    reached: frozenset[str]
    names: frozenset[str]
    ingress: frozenset[str] | None = None

    def target(self, pod: CheckPod) -> str:
        """The node that a pod asked: as it answered, else where the pod of that index runs."""
        index = pod.report.get("next")
        return str(pod.report.get("peer", "")) or (self.places.get(index, "") if isinstance(index, int) else "")

    def reaches(self, node: str) -> bool:
        """Whether a node's pod reached its own target."""
        pod = self.pods.get(node)
        return pod is not None and pod.report.get("reached") is True

    def sends_large(self, node: str) -> bool:
        """Whether a pod got packets of full size from this node."""
        return any(pod.report.get("large") is True and self.target(pod) == node for pod in self.pods.values())

    def gets_large(self, node: str) -> bool:
        """Whether a node's pod got packets of full size from its own target."""
        pod = self.pods.get(node)
        return pod is not None and pod.report.get("large") is True

    def answered(self, report: Mapping[str, Any], by: str) -> bool:
        """Whether what answered was a pod of this check: they say their node; a page of somebody else's does not."""
        return str(report.get(by, "")) in self.names

    @property
    def size(self) -> int:
        """How many nodes are expected."""
        return len(self.names)

    def connected(self, node: str) -> bool:
        """Whether pods of this node and of others reach each other: by their own addresses, or behind a Service's."""
        pod = self.pods.get(node)
        served = pod is not None and self.answered(pod.report, "vip") and pod.report["vip"] != node
        return self.size == 1 or node in self.reached or self.reaches(node) or served


def judge(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """One verdict for each node; final once every expected node's pod has ended."""
    found = by_node(seen.pods)
    places = {pod.index: pod.node for pod in seen.pods if pod.node}
    bare = Ring(found, places, frozenset(), frozenset(want.nodes))
    reached = frozenset(node for pod in found.values() for node in _seen_by(pod, bare))
    controllers = frozenset(seen.ingress or ()) if want.ingress else None
    ring = Ring(found, places, reached, bare.names, controllers)
    rows = [_row(name, ring, seen.pods) for name in want.nodes]
    ways = "resolved the API's name, reached a Service and a pod on another node" + (", came in by ingress" if want.ingress else "")
    verdict = of_nodes(GATE, rows, what=ways)
    ended = all(name in found and found[name].ended for name in want.nodes)
    return msgspec.structs.replace(verdict, final=True) if ended and not verdict.is_pass else verdict


def _seen_by(pod: CheckPod, ring: Ring) -> Iterator[str]:
    """The nodes whose pods answered this one, whichever way it asked; its own node does not count."""
    if pod.report.get("reached") is True:
        yield ring.target(pod)
    for way in ("before", "vip", "named", "ingress"):
        if ring.answered(pod.report, way) and pod.report[way] != pod.node:
            yield pod.report[way]


def _row(name: str, ring: Ring, pods: tuple[CheckPod, ...]) -> NodeVerdict:
    pod = ring.pods.get(name)
    if pod is None or not pod.report:
        return silent(name, pod, pods, "what a pod on this node resolved and reached")
    found = next(_findings(name, pod, ring), None)
    return found.of_node(name) if found else NodeVerdict(node=name, status=Status.PASS, seen=_good(pod, ring))


def _good(pod: CheckPod, ring: Ring) -> str:
    resolved, target = pod.report.get("resolved"), ring.target(pod)
    if ring.size == 1:
        return f"resolved {resolved}, reached a Service; there is no other node to reach"
    if pod.report.get("reached") is not True:
        return f"was reached; {target or 'its target'} reaches nobody itself"
    return f"resolved the API's name, reached a Service and a pod on {target}"


def _findings(name: str, pod: CheckPod, ring: Ring) -> Iterator[Finding]:
    """What a pod could not do, and why; what the rest follows from comes first."""
    report = pod.report
    yield from _service(name, report, ring)
    yield from _dns(name, report, ring)
    if ring.size > 1:
        yield from _neighbour(name, pod, ring)
    if ring.ingress is not None:
        yield from _ingress(name, report, ring, ring.ingress)


def _service(name: str, report: Mapping[str, Any], ring: Ring) -> Iterator[Finding]:
    """A Service is an address that kube-proxy (or the network plugin in its place) rewrites on the asking node. Names are looked up
    at such an address too, so that without these rules DNS fails as well."""
    if not ring.answered(report, "vip") and ring.connected(name):
        cause = "kube-proxy's rules are missing or old"
        seen = f"a Service does not answer by its address here, and pods reach each other by theirs: {cause}"
        step = f"read /var/log/pods/kube-system_kube-proxy-{name}* on {name}, and see whether iptables-save shows KUBE-SVC rules"
        yield _failed(seen, "an answer from it", step)


def _dns(name: str, report: Mapping[str, Any], ring: Ring) -> Iterator[Finding]:
    resolved, service = str(report.get("resolved", "")), str(report.get("service", ""))
    if not resolved or resolved != service:
        seen = f"kubernetes.default resolves to {resolved or 'nothing'}{_said(report)}"
        if ring.connected(name):
            step = f"see CoreDNS, and whether {name} lets UDP 53 and 8472 (Canal's VXLAN) through"
        else:
            step = f"see the pod network of {name} first, where pods of other nodes do not reach it either (UDP 8472 with Canal)"
        yield _failed(seen, f"the API's service address {service}".rstrip(), step)
    elif not ring.answered(report, "named") and ring.answered(report, "vip"):
        seen = f"a Service answers by its address, and not by its name{_said(report)}"
        yield _failed(seen, "an answer by its name too", f"see CoreDNS's log, and /etc/resolv.conf of pods on {name}")


def _neighbour(name: str, pod: CheckPod, ring: Ring) -> Iterator[Finding]:
    target = ring.target(pod)
    reached, said = pod.report.get("reached") is True, pod.report.get("error")
    if target == name:
        step = "run the check again: its pods must be on different nodes"
        yield unknown(FailureClass.RUNTIME, f"the other pod ran on {name} too", "a pod on another node", step)
    elif reached and not target:
        step = "run the check again"
        yield unknown(FailureClass.RUNTIME, "a pod of unknown place answered", "the name of its node", step)
    elif not reached and not (name in ring.reached and not ring.reaches(target)):
        seen = f"the pod on {target or 'another node'} was not reached{f': {said}' if said else ''}"
        step = f"see routes, MTU and firewall between {name} and {target or 'it'} (UDP 8472 with Canal)"
        yield _failed(seen, "an answer from it", step)
    elif not ring.answered(pod.report, "vip"):
        yield _failed("a Service does not answer by its address here", "an answer from it", f"see kube-proxy on {name}")
    if reached:
        yield from _large(name, target, pod.report.get("large"), ring)


def _large(name: str, target: str, came: object, ring: Ring) -> Iterator[Finding]:
    expected = "packets of full size in both directions"
    if came is False and not (ring.sends_large(name) and not ring.gets_large(target)):
        seen = f"short answers of the pod on {target} come here, and packets of full size are lost on the way"
        step = (
            f"see `ip -d link` of {name} and {target}, and the MTU of the switches between them: Canal's pods need 50 bytes of it"
        )
        yield _failed(seen, expected, step)
    elif not isinstance(came, bool):
        step = "run the check again"
        yield unknown(FailureClass.RUNTIME, "nothing tells whether packets of full size come through", expected, step)


def _ingress(name: str, report: Mapping[str, Any], ring: Ring, controllers: frozenset[str]) -> Iterator[Finding]:
    pods, answered = (
        "kubectl -n kube-system get pods -o wide, for those of the ingress controller",
        ring.answered(report, "ingress"),
    )
    if not controllers:
        yield unknown(FailureClass.DEPENDENCY, "no node runs a pod of the ingress controller", "one on port 80 of nodes", pods)
    elif name in controllers and not (report.get("own") is True and answered):
        other = f"; that of another node brought an answer from {report['ingress']}" if answered and not report.get("own") else ""
        seen = f"the ingress controller of this node brings no answer on port 80{other}{_said(report)}"
        step = f"read the log of the ingress controller's pod on {name}, and see what else holds port 80 there"
        yield _failed(seen, "an answer of the check's pods", step)
    elif not answered:
        seen = f"no ingress controller brings an answer on port 80{_said(report)}"
        yield _failed(seen, "an answer of the check's pods", f"see whether {name} reaches port 80 of the nodes with one; {pods}")


def _said(report: Mapping[str, Any]) -> str:
    return f" ({report['error']})" if report.get("error") else ""


def _failed(seen: str, expected: str, next_step: str) -> Finding:
    return fail(FailureClass.DEPENDENCY, seen, expected, next_step)
