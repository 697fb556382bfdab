"""Gates of factory_storage: each project has the shared folder, and what one node writes there every node reads."""

from collections.abc import Iterator

from steps.contract.host_ranges import fold
from steps.contract.objects.checks import CheckPod
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.factory_storage.contract import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
)
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, unknown

CONTROL = "factory_storage/control"
FUNCTIONAL = "factory_storage/functional"


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that the claim of each project is bound to the volume of the shared folder."""
    claims = {claim.name: claim for claim in seen.claims}
    if not want.claims:
        finding = unknown(FailureClass.INPUT, "no claim was asked for", "a claim", "name a project in the spec")
        return finding.verdict(CONTROL)
    for name, volume in want.claims.items():
        claim = claims.get(name)
        if claim is None or claim.phase != "Bound" or claim.volume != volume:
            state = f"is {claim.phase or 'without a phase'} {claim.volume}".rstrip() if claim else "does not exist"
            step = f"kubectl -n {name.partition('/')[0]} describe pvc; a claim's volume is immutable: delete one of another volume"
            return unknown(FailureClass.HEALTH, f"claim {name} {state}", f"Bound to {volume}", step).verdict(CONTROL)
    return passed(CONTROL, f"the shared folder is bound in {count(len(want.claims), 'project')}")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that one pod wrote to the shared folder, and that each node read exactly what it wrote."""
    if not want.nodes:
        step = "prepare at least one machine of the factory"
        return unknown(FailureClass.INPUT, "no node takes part in the check", "a node", step).verdict(FUNCTIONAL)
    finding = next(_problems(seen, want), None)
    if finding is not None:
        return finding.verdict(FUNCTIONAL)
    return passed(FUNCTIONAL, f"what one node wrote was read on {count(len(want.nodes), 'node')}")


def _problems(seen: FunctionalObservation, want: FunctionalExpectation) -> Iterator[Finding]:
    """Yield what hinders a pass: the folder was not written, nodes read something else, nodes reported nothing."""
    pods = gate_checks.by_node(seen.pods)
    reports = {node: pods[node] for node in want.nodes if node in pods and pods[node].report}
    writer = next((pod for pod in reports.values() if pod.index == 0), None)
    written = str(writer.report.get("wrote", "")) if writer else ""
    if writer is not None and not written:
        step = "see the export's options (rw, no_root_squash or the right owner) and free space on the server"
        yield fail(FailureClass.HARDWARE, f"{writer.node} did not write: {_error(writer)}", "a written file", step, final=True)
    bad = sorted(node for node, pod in reports.items() if written and pod.report.get("read") != written)
    if bad:
        example = reports[bad[0]]
        state = repr(str(example.report.get("read"))[:60]) if example.report.get("read") else f"nothing: {_error(example)}"
        step = "mount the export on one of these nodes by hand: they may see another folder, or a cached one"
        yield fail(
            FailureClass.HARDWARE, f"{fold(bad)} read {state}", f"what {writer.node if writer else 'one'} wrote", step, final=True
        )
    if finding := gate_checks.first_silent(want.nodes, seen.pods, "what was written, read"):
        yield finding
    if not written:
        yield unknown(FailureClass.RUNTIME, "no pod reported what it wrote", "a written file", "see which pod has index 0")
    if problem := gate_checks.wrong_indexes(reports.values(), len(want.nodes)):
        yield problem


def _error(pod: CheckPod) -> str:
    return str(pod.report.get("error", ""))[:200] or "no reason reported"
