"""Judges check `host`: what API servers and CoreDNS ask from the network of a server, as the stages after rke2 need it.

An API server calls webhooks at their Services' addresses from its host's network. If that times out while pods reach each other,
the next stage's chart would get the blame, with ready endpoints. CoreDNS asks the DNS servers in the resolv.conf that the kubelet
gives it, which need not be the host's own: RKE2 gives 8.8.8.8 where that names only loopback or link-local servers.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Any

import msgspec

from steps.contract.objects.checks import CheckPod
from steps.contract.plain_text import count, some
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes
from steps.stages.rke2.contract import HostNetworkExpectation, HostNetworkObservation
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown
from steps.stages.shared.gate_checks import by_node, silent, unplaced

GATE = "rke2/host_network"
MOST_NAMED = 3
_DNS_STEP = (
    "see which DNS servers the hosts have: where resolv.conf names only loopback or link-local ones, RKE2 gives CoreDNS 8.8.8.8; "
    "write those of the site into os.dns"
)


def judge(seen: HostNetworkObservation, want: HostNetworkExpectation) -> Verdict:
    """Return the verdict on all expected servers. A fail is final once the pod of every server has ended."""
    pods = by_node(seen.pods)
    running = frozenset(seen.answers)
    pending = unplaced(seen.pods)
    rows = [_row(name, pods.get(name), pending, running, want) for name in want.nodes]
    what = "reached a Service on another node from the host's network" if not want.alone else "reached a Service from its network"
    verdict = of_nodes(GATE, rows, what=f"{what}, and {want.outside} by DNS" if want.outside else what)
    ended = all(name in pods and pods[name].ended for name in want.nodes)
    return msgspec.structs.replace(verdict, final=True) if ended and not verdict.is_pass else verdict


def _row(
    name: str, pod: CheckPod | None, pending: tuple[CheckPod, ...], running: Set[str], want: HostNetworkExpectation
) -> NodeVerdict:
    if pod is None or not pod.report:
        return silent(pod, pending, "what this server reached from its own network").of_node(name)
    finding = next(_upstreams(pod.report, want), None) or next(_service(name, pod.report, running, want), None)
    dead = [server for server, answer in _servers(pod.report) if not answer]
    note = f"; no answer of DNS server {some(dead, MOST_NAMED)}" if dead and want.outside else ""
    return node_verdict(name, finding, f"reached {', '.join(_answered(pod.report))}{note}")


def _servers(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the DNS servers that a server's pod asked, with their answers; empty without a readable list."""
    entries = report.get("upstreams")
    rows = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [(str(entry.get("server", "")), str(entry.get("answer", ""))) for entry in rows if entry.get("server")]


def _answered(report: Mapping[str, Any]) -> list[str]:
    entries = report.get("answered")
    return [str(node) for node in entries] if isinstance(entries, list) else []


def _upstreams(report: Mapping[str, Any], want: HostNetworkExpectation) -> Iterator[Finding]:
    """Yield a problem if no DNS server of the kubelet's resolv.conf answers about the outside name."""
    if not want.outside:
        return
    servers = _servers(report)
    if not servers:
        yield unknown(FailureClass.RUNTIME, "nothing tells which DNS servers CoreDNS asks here", "at least one", _DNS_STEP)
    elif not any(answer for _, answer in servers):
        names = some([server for server, _ in servers], MOST_NAMED)
        seen = f"asked from this server, no DNS server that CoreDNS asks ({names}) answers about {want.outside}{_said(report)}"
        yield fail(FailureClass.DEPENDENCY, seen, "an answer from one of them", _DNS_STEP)


def _service(name: str, report: Mapping[str, Any], running: Set[str], want: HostNetworkExpectation) -> Iterator[Finding]:
    """Yield a problem unless a pod on another node answered behind a Service's address, asked from the network of a server."""
    answered = set(_answered(report))
    # another server of the site could answer at a Service's address: only nodes with a pod of the check count
    if any(node != name or want.alone for node in answered & running):
        return
    expected = "an answer" if want.alone else "an answer from a pod on another node"
    others = sorted(node for node in running if node != name or want.alone)
    if strangers := sorted(answered - running):
        seen_there = f"behind the Service that this server asked answered {some(strangers, MOST_NAMED)}, which runs no pod of it"
        yield unknown(FailureClass.RUNTIME, seen_there, expected, "run the check again")
    elif not others:
        step = "see why the pods of check `answer` do not run on other nodes"
        yield unknown(FailureClass.RUNTIME, "no other node runs a pod behind the Service that this server asked", expected, step)
    else:
        yield _unreached(name, report, others, expected)


def _unreached(name: str, report: Mapping[str, Any], others: list[str], expected: str) -> Finding:
    """Return the failure of a server that got no answer from the pods on other nodes behind a Service."""
    unanswered = report.get("unanswered")
    times = f" ({count(unanswered, 'request')} without an answer)" if isinstance(unanswered, int) else ""
    only = "; only the pod on this node answers" if _answered(report) else ""
    problem = (
        f"from the host network of this server, a Service with pods on {some(others, MOST_NAMED)} does not answer{only}{times}"
    )
    step = (
        "API servers call webhooks this way: see whether a firewall lets the pod network's traffic in (VXLAN: UDP 8472), checksum "
        f"offload of its interface (canal: ethtool -K flannel.1 tx-checksum-ip-generic off), and kube-proxy on {name}"
    )
    return fail(FailureClass.DEPENDENCY, f"{problem}{_said(report)}", expected, step)


def _said(report: Mapping[str, Any]) -> str:
    return f" ({report['error']})" if report.get("error") else ""
