"""Judges check `dns`: from every node, a pod resolves the API's name, reaches a Service, a pod of another node, and the ingress.

The pods form a ring in which each asks the next one. If a request fails, the bad end is found by comparing pairs: a node that its
own neighbour reached is not blamed if its target reaches nobody. The same holds for packets of full size, which a smaller MTU on
the way drops silently while short answers pass. Pods that reach each other although a Service's address is dead point to
kube-proxy's rules; a Service that answers by its address but not by its name points to DNS. Outside names are judged
in `gate_outside`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes
from steps.stages.rke2 import gate_outside
from steps.stages.rke2.contract import FunctionalExpectation, FunctionalObservation
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.shared.gate_checks import by_node, silent, unplaced

GATE = "rke2/functional"


class Ring(Struct, frozen=True):
    """The pods of check `dns` as a ring, in which each pod asks the next one; built from their reports.

    `pods` are the pods by node, `places` the nodes by pod index, `reached` the nodes that some other pod reached, `names` all
    expected nodes, `ingress` those that run an ingress controller (None if ingress is not checked).
    """

    pods: Mapping[str, CheckPod]
    places: Mapping[int, str]
    reached: frozenset[str]
    names: frozenset[str]
    ingress: frozenset[str] | None = None

    def target(self, pod: CheckPod) -> str:
        """Return the node that a pod asked: the name in that node's answer, else the node of the pod with the next index."""
        index = pod.report.get("next")
        return str(pod.report.get("peer", "")) or (self.places.get(index, "") if isinstance(index, int) else "")

    def reaches(self, node: str) -> bool:
        """Return True if a node's pod reached the next pod in the ring."""
        pod = self.pods.get(node)
        return pod is not None and pod.report.get("reached") is True

    def sends_large(self, node: str) -> bool:
        """Return True if some pod received packets of full size from this node."""
        return any(pod.report.get("large") is True and self.target(pod) == node for pod in self.pods.values())

    def gets_large(self, node: str) -> bool:
        """Return True if a node's pod received packets of full size from the next pod in the ring."""
        pod = self.pods.get(node)
        return pod is not None and pod.report.get("large") is True

    def answered(self, report: Mapping[str, Any], key: str) -> bool:
        """Return True if the report names an expected node under key `key`: a pod of this check answered, no foreign web page."""
        return str(report.get(key, "")) in self.names

    @property
    def size(self) -> int:
        """Return the number of expected nodes, each of which should have a pod in the ring."""
        return len(self.names)

    def connected(self, node: str) -> bool:
        """Return True if pods of this node and of others reach each other, by their own addresses or through a Service."""
        pod = self.pods.get(node)
        served = pod is not None and self.answered(pod.report, "vip") and pod.report["vip"] != node
        return self.size == 1 or node in self.reached or self.reaches(node) or served


def judge(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Return the verdict on all expected nodes. A fail is final once the pod of every expected node has ended."""
    pods = by_node(seen.pods)
    places = {pod.index: pod.node for pod in seen.pods if pod.node}
    # which nodes were reached is read from the reports, and reading them needs the expected names
    bare = Ring(pods, places, frozenset(), frozenset(want.nodes))
    reached = frozenset(node for pod in pods.values() for node in _seen_by(pod, bare))
    controllers = frozenset(seen.ingress or ()) if want.ingress else None
    ring = Ring(pods, places, reached, bare.names, controllers)
    pending = unplaced(seen.pods)
    rows = [_row(name, ring, pending, want) for name in want.nodes]
    ways = "resolved the API's name, reached a Service and a pod on another node" + (", came in by ingress" if want.ingress else "")
    ways += f", resolved {', '.join(want.outside)}" if want.outside else ""
    verdict = of_nodes(GATE, rows, what=ways)
    ended = all(name in pods and pods[name].ended for name in want.nodes)
    return msgspec.structs.replace(verdict, final=True) if ended and not verdict.is_pass else verdict


def _seen_by(pod: CheckPod, ring: Ring) -> Iterator[str]:
    """Yield the nodes whose pods answered this pod in any way, except its own node."""
    if pod.report.get("reached") is True:
        yield ring.target(pod)
    for way in ("before", "vip", "named", "ingress"):
        if ring.answered(pod.report, way) and pod.report[way] != pod.node:
            yield pod.report[way]


def _row(name: str, ring: Ring, pending: Iterable[CheckPod], want: FunctionalExpectation) -> NodeVerdict:
    pod = ring.pods.get(name)
    if pod is None or not pod.report:
        return silent(pod, pending, "what a pod on this node resolved and reached").of_node(name)
    finding = next(_findings(name, pod, ring), None) or next(gate_outside.findings(pod.report, want), None)
    if finding is None and ring.ingress is not None:
        finding = next(_ingress(name, pod.report, ring, ring.ingress), None)
    return node_verdict(name, finding, _good(pod, ring))


def _good(pod: CheckPod, ring: Ring) -> str:
    resolved, target = pod.report.get("resolved"), ring.target(pod)
    if ring.size == 1:
        return f"resolved {resolved}, reached a Service; there is no other node to reach"
    if pod.report.get("reached") is not True:
        return f"was reached; {target or 'its target'} reaches nobody itself"
    return f"resolved the API's name, reached a Service and a pod on {target}"


def _findings(name: str, pod: CheckPod, ring: Ring) -> Iterator[Finding]:
    """Yield the network failures that a pod's report shows, causes before their consequences."""
    report = pod.report
    yield from _service(name, report, ring)
    yield from _dns(name, report, ring)
    if ring.size > 1:
        yield from _neighbour(name, pod, ring)


def _service(name: str, report: Mapping[str, Any], ring: Ring) -> Iterator[Finding]:
    """Yield a failure if the Service's address is dead although pods reach each other.

    kube-proxy (or the network plugin in its place) rewrites a Service's address on the asking node. DNS is asked at such an address
    too, so without these rules DNS fails as well.
    """
    if not ring.answered(report, "vip") and ring.connected(name):
        cause = "kube-proxy's rules are missing or old"
        seen = f"a Service does not answer by its address here, and pods reach each other by theirs: {cause}"
        step = f"read /var/log/pods/kube-system_kube-proxy-{name}* on {name}, and see whether iptables-save shows KUBE-SVC rules"
        yield _failed(seen, "an answer from it", step)


def _dns(name: str, report: Mapping[str, Any], ring: Ring) -> Iterator[Finding]:
    resolved, service = str(report.get("resolved", "")), str(report.get("service", ""))
    # an answer alone proves nothing: a resolver of the site may answer any name
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
    reached, error = pod.report.get("reached") is True, pod.report.get("error")
    if target == name:
        step = "run the check again: its pods must be on different nodes"
        yield unknown(FailureClass.RUNTIME, f"the other pod ran on {name} too", "a pod on another node", step)
    elif reached and not target:
        step = "run the check again"
        yield unknown(FailureClass.RUNTIME, "a pod of unknown place answered", "the name of its node", step)
    elif not reached and not (name in ring.reached and not ring.reaches(target)):
        seen = f"the pod on {target or 'another node'} was not reached{f': {error}' if error else ''}"
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
    pods = "kubectl -n kube-system get pods -o wide, for those of the ingress controller"
    answered = ring.answered(report, "ingress")
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
