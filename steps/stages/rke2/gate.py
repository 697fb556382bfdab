"""Gates of rke2: every host runs the wanted release, the control plane is whole, every node joined, and pods reach each other."""

from collections.abc import Iterator, Sequence

import msgspec

from steps.contract.measurements import versions
from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes
from steps.stages.rke2 import gate_control_plane, gate_etcd, gate_host_network, gate_network, gate_registration
from steps.stages.rke2.contract import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    HostNetworkExpectation,
    HostNetworkObservation,
    NodesExpectation,
    NodesObservation,
    PlayExpectation,
    PlayObservation,
    Rke2Host,
    Rke2HostFacts,
)
from steps.stages.shared import gate_plays
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

MOST_NOTED = 5


def servers(seen: PlayObservation, want: PlayExpectation) -> Verdict:
    """Check that the play ended well on every server and that each runs the wanted release."""
    return _played("rke2/servers", seen, want)


def agents(seen: PlayObservation, want: PlayExpectation) -> Verdict:
    """Check that the play ended well on every agent of the shard and that each runs the wanted release."""
    return _played("rke2/agents", seen, want)


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that the API server, every etcd member, DNS and the network plugin work, with no pod that has just restarted."""
    return gate_control_plane.judge(seen, want)


def nodes(seen: NodesObservation, want: NodesExpectation) -> Verdict:
    """Check every expected node: registered, alive, Ready for a while, of the wanted release. Unexpected nodes are only noted."""
    strange = sorted({node.name for node in seen.nodes} - set(want.nodes))
    rows = gate_registration.rows(seen, want)
    verdict = of_nodes("rke2/nodes", rows, what=f"Ready with {want.version}", notes=_strangers(strange))
    expected = set(want.nodes)
    kubelets = {node.name: node.version for node in seen.nodes if node.name in expected}
    return msgspec.structs.replace(verdict, versions=versions({"Kubernetes": kubelets}))


def host_network(seen: HostNetworkObservation, want: HostNetworkExpectation) -> Verdict:
    """Check that from every server's own network Services on other nodes answer, and the DNS servers that CoreDNS asks."""
    return gate_host_network.judge(seen, want)


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that on every node a pod resolved the API's name and outside names, reached a Service and a pod on another node."""
    return gate_network.judge(seen, want)


def _played(gate: str, seen: PlayObservation, want: PlayExpectation) -> Verdict:
    by_name = {node.node: node for node in seen.nodes}
    expected = frozenset(want.nodes)
    members = sum(node.facts is not None and node.facts.ready for node in seen.nodes if node.node in expected)
    rows = [_host(name, by_name.get(name), want, members) for name in want.nodes]
    kept = {node.node: node.facts.aside for node in seen.nodes if node.facts is not None}
    return of_nodes(gate, rows, what=f"{want.service} {want.version} runs", notes=gate_plays.moved_files_notes(kept))


def _host(name: str, host: Rke2Host | None, want: PlayExpectation, members: int) -> NodeVerdict:
    if host is None:
        return gate_plays.missing_record_finding(name).of_node(name)
    restored = f"; its etcd was set back to {host.facts.restored}" if host.facts and host.facts.restored else ""
    return node_verdict(name, next(_findings(name, host, want, members), None), f"{want.service} is active{restored}")


def _findings(name: str, host: Rke2Host, want: PlayExpectation, members: int) -> Iterator[Finding]:
    if problem := gate_plays.problem(host):
        yield problem
    if host.facts is None:
        yield _open(host.message or "no observation", "an observation of the service", f"play rke2 on {name} again")
    else:
        yield from _service(name, host.facts, want, members)


def _service(name: str, facts: Rke2HostFacts, want: PlayExpectation, members: int) -> Iterator[Finding]:
    """Yield the problems of a host's RKE2 service, the most basic first.

    `members` counts the servers that are ready. etcd connects all of them; a server that is away is not the fault of the others.
    """
    journal = f"read journalctl -u {want.service} on {name}"
    # a host that changes its role keeps the old unit until RKE2 is uninstalled
    if facts.service != want.service:
        step = f"run rke2-uninstall.sh on {name}: its role has changed"
        yield fail(FailureClass.INPUT, f"{facts.service or 'no service'} is installed", want.service, step)
    if facts.rolled_back:
        problem = f"the upgrade failed and was rolled back to {facts.rolled_back}"
        yield fail(FailureClass.RUNTIME, problem, want.version, journal)
    if facts.version != want.version:
        step = "correct rke2.version, or the artifacts that the machine installed from"
        yield fail(FailureClass.COMPARISON, gate_registration.version_seen(facts.version, want.version), want.version, step)
    if facts.state in ("activating", "reloading"):
        yield _open(f"{want.service} is {facts.state}", "active", journal)
    if facts.state != "active":
        yield fail(FailureClass.RUNTIME, f"{want.service} is {facts.state or 'in an unknown state'}", "active", journal)
    if not facts.enabled:
        yield fail(FailureClass.RUNTIME, f"{want.service} is not enabled", "enabled, to come back after a reboot", journal)
    # NRestarts grows until the next manual start, so old restarts must not count for ever
    if facts.restarts > want.restarts and facts.up_seconds < want.calm_seconds:
        problem = f"{facts.restarts} restarts of {want.service}, the last {facts.up_seconds:.0f} s ago"
        step = f"{journal}; once that is mended, `systemctl reset-failed {want.service}` ends the count"
        yield fail(FailureClass.RUNTIME, problem, f"at most {want.restarts}, or {want.calm_seconds:.0f} s without one", step)
    if not facts.ready:
        endpoint = "/readyz of this server's own API (port 6443)" if want.etcd else "the kubelet's /healthz on this host"
        lacks = f" (waits for: {facts.waiting_for})" if facts.waiting_for else ""
        yield unknown(FailureClass.HEALTH, f"{want.service} runs, but {endpoint} does not say ok{lacks}", "ok", journal)
    if facts.secrets_encryption == "Disabled":
        step = "see docs.rke2.io/security/secrets_encryption: `rke2 secrets-encrypt` turns it on, server by server"
        yield fail(FailureClass.COMPARISON, "Secrets lie in etcd as they are", "RKE2's encryption of Secrets", step)
    if want.etcd is not None:
        yield from gate_etcd.findings(name, facts.member, want.etcd, members, len(want.nodes))
        if not facts.secrets_encryption:
            step = f"ask it by hand: `rke2 secrets-encrypt status` on {name}"
            yield _open("nothing tells whether Secrets are encrypted in etcd", "RKE2's encryption of Secrets", step)


def _strangers(strange: Sequence[str]) -> list[str]:
    more = f" and {len(strange) - MOST_NOTED} more" if len(strange) > MOST_NOTED else ""
    note = f"registered, but not expected (not in the fleet, or set aside): {', '.join(strange[:MOST_NOTED])}{more}"
    return [note] if strange else []


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.RUNTIME, seen, expected, next_step)
