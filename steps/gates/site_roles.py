"""Gate of a site's own role: every host came to the end of the very role that the plan names, without a failed task."""

from collections.abc import Iterator

from steps.contract.site_roles import Expectation, HostObservation, Observation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, of_nodes
from steps.gates import plays
from steps.gates.finding import Finding, unknown


def ran(seen: Observation, want: Expectation) -> Verdict:
    """The role ran to its end on every host."""
    by_name = {node.node: node for node in seen.nodes}
    rows = [_row(name, by_name.get(name), want) for name in want.nodes]
    return of_nodes("site_roles/ran", rows, what=f"done with role {want.role}")


def _row(name: str, host: HostObservation | None, want: Expectation) -> NodeVerdict:
    if host is None:
        return plays.unrecorded(name).of_node(name)
    if found := next(_findings(name, host, want), None):
        return found.of_node(name)
    return NodeVerdict(node=name, status=Status.PASS, seen=f"role {want.role} ran to its end, {host.changed} changed")


def _findings(name: str, host: HostObservation, want: Expectation) -> Iterator[Finding]:
    if problem := plays.problem(host):
        yield problem
    expected = f"role {want.role} at {want.digest[:19]} to run to its end"
    if host.ran is None:
        said = host.message or f"nothing says that role {want.role} came to its end"
        yield unknown(FailureClass.RUNTIME, said, expected, f"see whether the role ends the play early (meta: end_host) on {name}")
    elif (host.ran.role, host.ran.digest) != (want.role, want.digest):
        seen = f"role {host.ran.role} at {host.ran.digest[:19]} ran"
        yield unknown(FailureClass.MANIFEST_GENERATION, seen, expected, "run the plan again as it was submitted")
