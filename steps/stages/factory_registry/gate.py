"""Gates of factory_registry: the registry runs on its volume, and an artefact pushed from one node is pulled on every node."""

from collections.abc import Iterator

from steps.contract.checks import CheckPod
from steps.contract.host_ranges import fold
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.factory_registry.contract import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    RegistryClaim,
)
from steps.stages.shared import gate_charts, gate_checks
from steps.stages.shared.finding import Finding, fail, unknown

CONTROL = "factory_registry/control"
FUNCTIONAL = "factory_registry/functional"
SPACE = "registry"
QUOTE = 200
"""Most characters of a pod's error in a sentence."""


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that the registry's pod is ready with the wanted image, its volume is bound, and its Service has the wanted ports."""
    finding = _volume(seen.claim, want.claim) or _workload(seen, want) or _service(seen, want)
    if finding is not None:
        return finding.verdict(CONTROL)
    return passed(CONTROL, f"{want.image} is ready, its volume is bound, and port {want.node_port} of every node leads to it")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that one pod pushed the artefact and that each node pulled exactly what was pushed."""
    if not want.nodes:
        step = "prepare at least one machine of the factory"
        return unknown(FailureClass.INPUT, "no node takes part in the check", "a node", step).verdict(FUNCTIONAL)
    finding = next(_problems(seen, want), None)
    if finding is not None:
        return finding.verdict(FUNCTIONAL)
    return passed(FUNCTIONAL, f"an artefact was pushed from one node and pulled on {count(len(want.nodes), 'node')}")


def _volume(claim: RegistryClaim | None, name: str) -> Finding | None:
    if claim is not None and claim.phase == "Bound" and claim.volume:
        return None
    state = f"claim {name} is {claim.phase or 'without a phase'}" if claim else f"there is no claim {name}"
    last = claim.events[-1] if claim and claim.events else ""
    step = f"kubectl -n {SPACE} describe pvc {name}; see the provisioner's log"
    return unknown(FailureClass.HEALTH, f"{state} {last}".rstrip(), "a bound volume", step)


def _workload(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    workload = seen.workload
    if workload is None or (workload.kind, workload.name) != ("Deployment", SPACE):
        return unknown(
            FailureClass.DEPENDENCY, "there is no Deployment registry", want.image, f"kubectl -n {SPACE} get deployments"
        )
    if workload.image != want.image:
        step = "find out who changes the Deployment; a run of the factory sets it again"
        return fail(FailureClass.COMPARISON, f"the Deployment has the image {workload.image or 'none'}", want.image, step)
    if not workload.settled() or not workload.ready:
        return gate_charts.judge_unsettled(workload, seen.trouble, SPACE)
    return None


def _service(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    if any(port.port == want.port and port.node_port == want.node_port for port in seen.ports):
        return None
    ports = ", ".join(f"{port.port} at {port.node_port}" for port in seen.ports) or "no port"
    step = f"kubectl -n {SPACE} get service registry; another Service may hold the node port"
    return unknown(FailureClass.COMPARISON, f"the Service has {ports}", f"{want.port} at {want.node_port}", step)


def _problems(seen: FunctionalObservation, want: FunctionalExpectation) -> Iterator[Finding]:
    """Yield what hinders a pass: no push, then nodes that did not pull, then nodes without a report."""
    pods = gate_checks.by_node(seen.pods)
    reports = {node: pods[node] for node in want.nodes if node in pods and pods[node].report}
    pushed = [pod for pod in reports.values() if pod.report.get("pushed")]
    refused = next((pod for pod in reports.values() if pod.index == 0 and not pod.report.get("pushed")), None)
    if refused is not None:
        step = f"kubectl -n {SPACE} logs deployment/registry; the pods reach it as Service registry.{SPACE}.svc"
        yield fail(
            FailureClass.RUNTIME, f"the push from {refused.node} failed: {_error(refused)}", "a pushed artefact", step, final=True
        )
    bad = sorted(node for node, pod in reports.items() if not pod.report.get("wanted") or _pulled(pod) != pod.report.get("wanted"))
    if bad:
        example = reports[bad[0]]
        state = f"pulled {_pulled(example)[:60]!r}" if _pulled(example) else f"pulled nothing: {_error(example)}"
        step = f"kubectl -n {SPACE} logs deployment/registry; see if its volume keeps data, and if these nodes reach the Service"
        yield fail(FailureClass.RUNTIME, f"{fold(bad)} {state}", "what was pushed", step, final=True)
    if finding := gate_checks.first_silent(want.nodes, seen.pods, "a pulled artefact"):
        yield finding
    if not any(pod.index == 0 for pod in pushed):
        step = "see which pod of the check has index 0"
        yield unknown(FailureClass.RUNTIME, "no pod reported a push", "a push from one node", step)
    if problem := gate_checks.wrong_indexes(reports.values(), len(want.nodes)):
        yield problem


def _pulled(pod: CheckPod) -> str:
    return str(pod.report.get("pulled", ""))


def _error(pod: CheckPod) -> str:
    return str(pod.report.get("error", ""))[:QUOTE] or "no answer"
