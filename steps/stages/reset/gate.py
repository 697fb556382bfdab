"""Gates of reset: no process, mount, link, packet filter rule, file or unit of RKE2 is left on any host."""

from collections.abc import Iterator, Sequence

from steps.contract.host_ranges import fold
from steps.contract.verdict import FailureClass, Verdict, of_nodes
from steps.stages.reset.contract import ResetExpectation, ResetHost, ResetObservation, Traces
from steps.stages.shared import gate_plays
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

MOST_TOLD = 3

_KINDS = (
    ("processes", "processes", "see why {node} does not end it (`ps -o stat,wchan PID`); state D needs a reboot"),
    ("mounts", "mounts", "see with `fuser -m` who holds it on {node}, then reset again"),
    ("links", "network links", "`ip link delete` it on {node}"),
    ("addresses", "addresses of servers", "`ip address delete` it on {node}: a server answers there"),
    (
        "routes",
        "routes that drop what goes to pods",
        "`ip route delete blackhole` it on {node}: another node's pods may get its network",
    ),
    ("rules", "chains of the packet filter", "`iptables-save` on {node} shows who else uses it; reset again, or reboot"),
    ("paths", "paths", "see what writes there on {node}, then reset again"),
    ("units", "units", "`systemctl disable --now` it on {node}, then reset again"),
)
"""Kinds of traces in the order in which one holds the next: field, name in messages, and next step."""


def agents(seen: ResetObservation, want: ResetExpectation) -> Verdict:
    """Check that no trace of RKE2 is left on any agent."""
    return _judged("reset/agents", seen, want)


def servers(seen: ResetObservation, want: ResetExpectation) -> Verdict:
    """Check that no trace of RKE2 is left on any server."""
    return _judged("reset/servers", seen, want)


def _judged(gate: str, seen: ResetObservation, want: ResetExpectation) -> Verdict:
    by_name = {node.node: node for node in seen.nodes}
    first = [(name, next(_findings(name, by_name.get(name)), None)) for name in want.nodes]
    rows = [node_verdict(name, finding, "nothing of RKE2 is left") for name, finding in first]
    kept = {node.node: node.facts.aside for node in seen.nodes if node.facts is not None}
    return of_nodes(gate, rows, what="bare of RKE2", notes=[*gate_plays.moved_files_notes(kept), *_until_boot(seen.nodes)])


def _until_boot(nodes: Sequence[ResetHost]) -> Iterator[str]:
    """Yield notes on parts that only a reboot removes from the kernel."""
    if loaded := [node.node for node in nodes if node.facts is not None and node.facts.foreign_driver]:
        yield f"the NVIDIA driver of a container stays in the kernel of {fold(loaded)} until the next boot"
    if attached := [node.node for node in nodes if node.facts is not None and node.facts.cilium_programs]:
        remark = f"BPF programs and maps of Cilium stay in the kernel of {fold(attached)} until the next boot"
        yield f"{remark}: reboot before another network plugin runs there"


def _findings(name: str, host: ResetHost | None) -> Iterator[Finding]:
    if host is None:
        yield gate_plays.missing_record_finding(name)
        return
    if problem := gate_plays.problem(host):
        yield problem
    if host.facts is None:
        message = host.message or "no observation"
        yield unknown(FailureClass.RUNTIME, message, "an observation of rke2_traces", f"reset {name} again")
    else:
        yield from _left(name, host.facts.traces)


def _left(name: str, traces: Traces) -> Iterator[Finding]:
    for field, what, step in _KINDS:
        left: tuple[str, ...] = getattr(traces, field)
        # a tool that is not installed finds nothing, which is no proof
        if not traces.looked.get(field):
            step = f"see what rke2_traces reads on {name}, then reset it again"
            yield unknown(FailureClass.RUNTIME, f"nothing tells whether {what} are left", f"{what} looked at", step)
        if left:
            more = f" and {len(left) - MOST_TOLD} more" if len(left) > MOST_TOLD else ""
            seen = f"{what} left: {', '.join(left[:MOST_TOLD])}{more}"
            yield fail(FailureClass.RUNTIME, seen, "nothing of RKE2", step.format(node=name))
