"""Gate of a site's own role: every host ran the very role that the plan names to its end, without a failed task."""

from collections.abc import Iterator

from steps.contract.verdict import FailureClass, NodeVerdict, Verdict, of_nodes
from steps.stages.shared import gate_plays
from steps.stages.shared.finding import Finding, node_verdict, unknown
from steps.stages.site_roles.contract import RoleExpectation, RoleHost, RoleObservation


def ran(seen: RoleObservation, want: RoleExpectation) -> Verdict:
    """Check that the role ran to its end on every host."""
    by_name = {node.node: node for node in seen.nodes}
    rows = [_row(name, by_name.get(name), want) for name in want.nodes]
    return of_nodes("site_roles/ran", rows, what=f"done with role {want.role}")


def _row(name: str, host: RoleHost | None, want: RoleExpectation) -> NodeVerdict:
    if host is None:
        return gate_plays.missing_record_finding(name).of_node(name)
    good = f"role {want.role} ran to its end, {host.changed} changed"
    return node_verdict(name, next(_findings(name, host, want), None), good)


def _findings(name: str, host: RoleHost, want: RoleExpectation) -> Iterator[Finding]:
    if problem := gate_plays.problem(host):
        yield problem
    expected = f"role {want.role} at {want.digest[:19]} to run to its end"
    if host.ran is None:
        message = host.message or f"nothing says that role {want.role} came to its end"
        yield unknown(
            FailureClass.RUNTIME, message, expected, f"see whether the role ends the play early (meta: end_host) on {name}"
        )
    elif (host.ran.role, host.ran.digest) != (want.role, want.digest):
        # an observation of an earlier plan must not pass for this one
        seen = f"role {host.ran.role} at {host.ran.digest[:19]} ran"
        yield unknown(FailureClass.MANIFEST_GENERATION, seen, expected, "run the plan again as it was submitted")
