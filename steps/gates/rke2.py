"""Gates of rke2: every host runs the wanted release, the control plane is whole, every node is in it, and pods reach each other."""

from collections.abc import Iterable, Iterator

from steps.contract.stages.rke2 import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    HostFacts,
    HostObservation,
    Node,
    NodesExpectation,
    NodesObservation,
    PlayExpectation,
    PlayObservation,
    parse_version,
)
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates import plays, rke2_control, rke2_network

MOST_NOTED = 5


def servers(seen: PlayObservation, want: PlayExpectation) -> Verdict:
    """Every server played to the end and runs the wanted release."""
    return _played("rke2/servers", seen, want)


def agents(seen: PlayObservation, want: PlayExpectation) -> Verdict:
    """Every agent of the shard played to the end and runs the wanted release."""
    return _played("rke2/agents", seen, want)


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """The API server, etcd, DNS and the network plugin are whole."""
    return rke2_control.judge(seen, want)


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Every expected node is registered, alive, Ready and of the wanted release; others are noted."""
    by_name = {node.name: node for node in seen.nodes}
    rows = [_node(name, by_name.get(name), want, seen.now) for name in want.nodes]
    return of_nodes("rke2/nodes", rows, what=f"Ready with {want.version}", notes=_strangers(by_name, want))


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """On every node a pod resolved the API's name and reached a pod on another node."""
    return rke2_network.judge(seen, want)


def _played(gate: str, seen: PlayObservation, want: PlayExpectation) -> Verdict:
    by_name = {node.node: node for node in seen.nodes}
    rows = [_host(name, by_name.get(name), want) for name in want.nodes]
    return of_nodes(gate, rows, what=f"{want.service} {want.version} runs")


def _host(name: str, host: HostObservation | None, want: PlayExpectation) -> NodeVerdict:
    if host is None:
        return _open(name, "no record", "a record of this host", f"read the log of the play that holds {name}")
    problem = plays.problem(host)
    if problem is not None:
        return problem.of_node(name)
    if host.facts is None:
        return _open(name, host.message or "no observation", "an observation of the service", f"play rke2 on {name} again")
    return next(_service(name, host.facts, want), NodeVerdict(node=name, status=Status.PASS, seen=f"{want.service} is active"))


def _service(name: str, facts: HostFacts, want: PlayExpectation) -> Iterator[NodeVerdict]:
    """The first thing that is wrong with a host's service."""
    journal = f"read journalctl -u {want.service} on {name}"
    if facts.service != want.service:
        step = f"run rke2-uninstall.sh on {name}: its role has changed"
        yield _bad(name, FailureClass.INPUT, f"{facts.service or 'no service'} is installed", want.service, step)
    if facts.version != want.version:
        step = "correct rke2.version, or the artifacts that the machine installed from"
        yield _bad(name, FailureClass.COMPARISON, _version_seen(facts.version, want.version), want.version, step)
    if facts.state in ("activating", "reloading"):
        yield _open(name, f"{want.service} is {facts.state}", "active", journal)
    if facts.state != "active":
        yield _bad(name, FailureClass.RUNTIME, f"{want.service} is {facts.state or 'in an unknown state'}", "active", journal)
    if not facts.enabled:
        yield _bad(name, FailureClass.RUNTIME, f"{want.service} is not enabled", "enabled, to come back after a reboot", journal)
    if facts.restarts > want.restarts:
        yield _bad(name, FailureClass.RUNTIME, f"{facts.restarts} restarts of {want.service}", f"at most {want.restarts}", journal)
    if not facts.ready:
        yield _open(name, f"{want.service} runs, but its health end point does not say ok", "ok", journal, FailureClass.HEALTH)


def _version_seen(seen: str, wanted: str) -> str:
    """Say which part differs: semver calls v1.35.7+rke2r1 and +rke2r2 equal, and they are not (gpu_stack §5)."""
    found, want = parse_version(seen), parse_version(wanted)
    if found is None:
        return f"version {seen!r}, which is no RKE2 version" if seen else "no version"
    if want and found[:4] == want[:4]:
        return f"{seen}: the right Kubernetes version in RKE2 revision r{found.revision}"
    return seen


def _node(name: str, node: Node | None, want: NodesExpectation, now: float) -> NodeVerdict:
    if node is None:
        step = f"read journalctl -u rke2-agent on {name} (token, registration address, port 9345)"
        return _bad(name, FailureClass.RUNTIME, "not registered", "a Node of this name", step)
    found = next(_node_findings(node, want, now), None)
    return found or NodeVerdict(node=name, status=Status.PASS, seen=f"Ready, {node.version}, {node.address}")


def _node_findings(node: Node, want: NodesExpectation, now: float) -> Iterator[NodeVerdict]:
    """The first thing that is wrong with a registered node."""
    name, journal = node.name, f"read the kubelet's log on {node.name}"
    if node.version != want.version:
        step = "upgrade this node to the same release as the others"
        yield _bad(name, FailureClass.COMPARISON, f"kubelet {_version_seen(node.version, want.version)}", want.version, step)
    if node.ready != "True":
        status = Status.FAIL if node.ready == "False" and now - node.since > want.alive_seconds else Status.INCONCLUSIVE
        seen = f"Ready is {node.ready}: {node.reason} {node.message}".rstrip()
        yield _row(name, status, FailureClass.HEALTH, seen, "Ready is True", journal)
    if not node.seen or now - node.seen > want.alive_seconds:
        ago = f"{now - node.seen:.0f} s ago" if node.seen else "never"
        yield _open(name, f"last sign of life {ago}", f"one within {want.alive_seconds:.0f} s", journal, FailureClass.HEALTH)
    if node.pressure:
        step = "free what is short on the node"
        yield _bad(name, FailureClass.HEALTH, f"{', '.join(node.pressure)} is True", "no pressure", step)
    if not node.address:
        yield _bad(name, FailureClass.INPUT, "no InternalIP", "an InternalIP", "set node-ip in /etc/rancher/rke2/config.yaml")
    yield from _unplanned(node, want)
    if not node.since or now - node.since < want.settled_seconds:
        ago = f"only {max(now - node.since, 0):.0f} s" if node.since else "a time that is not told"
        yield _open(name, f"Ready for {ago}", f"Ready for {want.settled_seconds:.0f} s", "wait, or see why it flaps")


def _unplanned(node: Node, want: NodesExpectation) -> Iterator[NodeVerdict]:
    if node.cordoned:
        ours = f"with annotation bringup/quarantine repair it and `bringup quarantine release {node.name} --as NAME`"
        step = f"{ours}; without it somebody else did that: `kubectl uncordon {node.name}`"
        yield _bad(node.name, FailureClass.INPUT, "cordoned", "schedulable", step)
    strange = [taint for taint in node.taints if taint not in want.taints]
    passing = [taint for taint in strange if taint.startswith("node.kubernetes.io/")]
    if passing:
        yield _open(node.name, f"taint {passing[0]}", "no taint of a condition", f"read the conditions of {node.name}")
    if strange:
        step = "remove the taint, or add it to the group's taints in the spec"
        yield _bad(node.name, FailureClass.COMPARISON, f"taint {strange[0]}", "only taints of the spec", step)


def _strangers(by_name: Iterable[str], want: NodesExpectation) -> list[str]:
    strange = sorted(set(by_name) - set(want.nodes))
    more = f" and {len(strange) - MOST_NOTED} more" if len(strange) > MOST_NOTED else ""
    said = f"registered, but not expected (not in the fleet, or set aside): {', '.join(strange[:MOST_NOTED])}{more}"
    return [said] if strange else []


def _bad(name: str, failure_class: FailureClass, seen: str, expected: str, next_step: str) -> NodeVerdict:
    return _row(name, Status.FAIL, failure_class, seen, expected, next_step)


def _open(name: str, seen: str, expected: str, next_step: str, failure_class: FailureClass = FailureClass.RUNTIME) -> NodeVerdict:
    return _row(name, Status.INCONCLUSIVE, failure_class, seen, expected, next_step)


def _row(name: str, status: Status, failure_class: FailureClass, seen: str, expected: str, next_step: str) -> NodeVerdict:
    return NodeVerdict(node=name, status=status, seen=seen, expected=expected, next_step=next_step, failure_class=failure_class)
