"""Gates of factory_registry: the registry runs on its volume, and every node pulls what was pushed from one of them."""

import re
from collections.abc import Iterator

import msgspec

from steps.contract.host_ranges import fold
from steps.contract.objects.checks import CheckPod
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Status, Verdict, passed
from steps.stages.factory_registry.contract import (
    ControlExpectation,
    ControlObservation,
    FunctionalExpectation,
    FunctionalObservation,
    NodePull,
    RegistryClaim,
)
from steps.stages.shared import gate_charts, gate_checks
from steps.stages.shared.finding import Finding, fail, unknown

CONTROL = "factory_registry/control"
FUNCTIONAL = "factory_registry/functional"
SPACE = "registry"
_HOPELESS_PULLS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Reasons of containers whose image the kubelet cannot pull by trying again: its name is wrong, or pulls are switched off."""
_PULL_ERRORS = _HOPELESS_PULLS | {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"}
"""Reasons of containers whose image the node could not pull. Kubelets try most of them again, after 10 s at first."""
_LASTING = re.compile(r"x509: |40[13] (Unauthorized|Forbidden)|no basic auth credentials|pull access denied|manifest unknown")
"""Errors of containerd that come from certificates, logins and names: trying again does not help."""
_PULL_STEP = (
    "try `crictl pull` on these nodes; compare /etc/rancher/rke2/registries.yaml with registry.tls and registry.login, and see if "
    "a firewall or kube-proxy blocks the node port"
)
QUOTE = 200
"""Most characters of a pod's error in a sentence."""


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check that the registry's pod is ready with the wanted image, its volume is bound, and its Service has the wanted ports."""
    finding = _volume(seen.claim, want.claim) or _workload(seen, want) or _service(seen, want)
    if finding is not None:
        return finding.verdict(CONTROL)
    return passed(CONTROL, f"{want.image} is ready, its volume is bound, and its Service has port {want.node_port} of the nodes")


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that one pod pushed, a pod on each node pulled the artefact, and each node itself pulled and ran the image."""
    if not want.nodes:
        step = "prepare at least one machine of the factory"
        return unknown(FailureClass.INPUT, "no node takes part in the check", "a node", step).verdict(FUNCTIONAL)
    finding = next(_problems(seen, want), None)
    if finding is not None:
        return finding.verdict(FUNCTIONAL)
    pulled = f"an artefact was pushed from one node and pulled on {count(len(want.nodes), 'node')}"
    return passed(FUNCTIONAL, f"{pulled}, and each node ran a pushed image as {want.image}")


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
    first = next((pod for pod in pushed if pod.index == 0), None)
    if first is not None and (finding := _node_pulls(seen, want, str(first.report.get("image", "")))):
        yield finding
    if first is None:
        step = "see which pod of the check has index 0"
        yield unknown(FailureClass.RUNTIME, "no pod reported a push", "a push from one node", step)
    if problem := gate_checks.wrong_indexes(reports.values(), len(want.nodes)):
        yield problem


def _node_pulls(seen: FunctionalObservation, want: FunctionalExpectation, digest: str) -> Finding | None:
    """Return the finding on the nodes that did not pull the image with this digest of its manifest, or did not run it."""
    if not digest:
        return unknown(
            FailureClass.RUNTIME, "no pod reported the image that it pushed", "its digest", "read the log of the check's pods"
        )
    # a Job replaces an evicted pod: what a node has pulled still counts
    pulls = {pull.pod.node: pull for pull in sorted(seen.pulls, key=lambda pull: pull.exit_code)}
    states = ((node, _node_pull(pulls.get(node), want.image, digest)) for node in want.nodes)
    findings = {node: finding for node, finding in states if finding is not None}
    if not findings:
        return None
    # a node that failed tells more than one that is not done, most of all one that will not try again
    worst = max(findings.values(), key=_weight)
    alike = [node for node, finding in findings.items() if _weight(finding) == _weight(worst)]
    return msgspec.structs.replace(worst, seen=f"{fold(sorted(alike))} {worst.seen}")


def _weight(finding: Finding) -> tuple[bool, bool]:
    return finding.final, finding.status is Status.FAIL


def _node_pull(pull: NodePull | None, image: str, digest: str) -> Finding | None:
    expected = f"{image} pulled and run as for any pod"
    if pull is None:
        return unknown(FailureClass.RUNTIME, "has no container of the pushed image", expected, "read the log of the check's pods")
    wait, ended = gate_checks.why(pull.pod), pull.exit_code >= 0
    if pull.image_id and not pull.image_id.endswith(f"@{digest}"):
        step = "see registries.yaml of RKE2 on these nodes: a mirror or a cache that answers for the registry has an older image"
        return fail(FailureClass.COMPARISON, f"pulled {pull.image_id}", digest, step, final=True)
    if ended and pull.exit_code == 0 and pull.image_id:
        return None
    if not ended and pull.pod.reason in _PULL_ERRORS:
        seen, step = f"cannot pull {image}: {wait.text}", wait.next_step or _PULL_STEP
        is_lasting = pull.pod.reason in _HOPELESS_PULLS or _LASTING.search(pull.pod.message) is not None
        return fail(wait.failure_class, seen, expected, step, final=is_lasting)
    if ended or pull.pod.ended:
        step = wait.next_step or "see the log of containerd on these nodes"
        return fail(wait.failure_class, f"did not run {image}: {wait.text}".rstrip(": "), expected, step, final=True)
    return unknown(FailureClass.RUNTIME, f"has not run {image} yet {wait.text}".rstrip(), expected, wait.next_step or _PULL_STEP)


def _pulled(pod: CheckPod) -> str:
    return str(pod.report.get("pulled", ""))


def _error(pod: CheckPod) -> str:
    return str(pod.report.get("error", ""))[:QUOTE] or "no answer"
