"""Gates of base_services: charts, CRDs, one default storage class, webhooks, a volume and a certificate work; Argo CD is set up."""

import re
from collections.abc import Iterable

import msgspec

from steps.contract.objects.checks import CHECK_NAMESPACE, CheckPod
from steps.contract.plain_text import count, truncate
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.base_services import gate_delivery
from steps.stages.base_services.contract import (
    ArgoCdExpectation,
    ArgoCdObservation,
    Certificate,
    ControlExpectation,
    ControlObservation,
    DeliveryExpectation,
    DeliveryObservation,
    FunctionalExpectation,
    FunctionalObservation,
    StorageClass,
    VolumeClaim,
    Webhook,
)
from steps.stages.shared import gate_charts, gate_checks
from steps.stages.shared.causes import RUNTIME_REASONS, SILENT_WEBHOOK
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_charts import missing_crd

CONTROL = "base_services/control"
FUNCTIONAL = "base_services/functional"
NETWORK_STEP = (
    "the network between servers and nodes is at fault, not the workload: firewall for the pod network (VXLAN: UDP 8472), checksum "
    "offload of its interface (canal: ethtool -K flannel.1 tx-checksum-ip-generic off), routes; gate rke2/host_network tests this"
)
QUOTE = 300
"""Most characters of an install log's line in a sentence."""


def control(seen: ControlObservation, want: ControlExpectation) -> Verdict:
    """Check charts, CRDs, exactly one default storage class, and reachable, trusted webhooks."""
    finding = (
        _installed(seen, want)
        or missing_crd(seen.crds, want.crds)
        or _storage(seen.storage_classes, want.storage_class)
        or _webhooks(seen.webhooks, want.webhook_namespaces)
    )
    if finding is not None:
        return finding.verdict(CONTROL)
    parts = [f"{count(len(want.releases), 'chart')} deployed", f"{count(len(want.crds), 'CRD')} established"]
    parts += [f"{want.storage_class} is the only default storage class"] if want.storage_class else []
    return passed(CONTROL, ", ".join(parts))


def argo_cd(seen: ArgoCdObservation, want: ArgoCdExpectation) -> Verdict:
    """Check that Argo CD runs in the wanted version."""
    return gate_delivery.argo_cd(seen, want)


def delivery(seen: DeliveryObservation, want: DeliveryExpectation) -> Verdict:
    """Check argocd-cm, AppProjects, repository credentials, trusted host keys and certificates before Argo CD deploys anything."""
    return gate_delivery.delivery(seen, want)


def functional(seen: FunctionalObservation, want: FunctionalExpectation) -> Verdict:
    """Check that the claim is bound, a pod read back the nonce that another container wrote, and the certificate was issued."""
    problem = _volume(seen.claim, seen.pods, want.storage_class) if want.storage_class else None
    problem = problem or (_certificate(seen.certificate) if want.certificate else None)
    if problem is not None:
        return problem.verdict(FUNCTIONAL)
    proofs = [f"a volume of {want.storage_class} kept a nonce"] if want.storage_class else []
    proofs += ["a certificate was issued"] if want.certificate else []
    if not proofs:
        expected, step = "a storage class or a certificate to prove", "leave the check out where there is nothing to prove"
        return unknown(FailureClass.INPUT, "nothing was asked of this check", expected, step).verdict(FUNCTIONAL)
    return passed(FUNCTIONAL, "; ".join(proofs))


def _installed(seen: ControlObservation, want: ControlExpectation) -> Finding | None:
    """Return the problem of the charts; if a webhook with ready endpoints was not reached, that of the servers' network."""
    finding = gate_charts.problem(seen.releases, want.releases, seen.root_app, want.root_app)
    texts = (text for state in seen.releases for text in gate_charts.install_texts(state)) if finding else ()
    unreached = {match["hook"]: match[0] for text in texts for match in re.finditer(SILENT_WEBHOOK, text)}
    hook = next((hook for hook in seen.webhooks if hook.ready and hook.name in unreached), None)
    if finding is None or hook is None:
        return finding
    # an API server calls webhooks from the host network, so ready pods that it does not reach are no fault of the workload
    ready = f"webhook {hook.name} has {count(hook.ready, 'ready endpoint')}, and the API server does not reach it"
    return msgspec.structs.replace(
        finding,
        seen=f"{ready}: {truncate(unreached[hook.name], QUOTE)}",
        expected=f"Service {hook.service} to answer the host network of the servers",
        next_step=NETWORK_STEP,
        failure_class=FailureClass.DEPENDENCY,
    )


def _storage(seen: tuple[StorageClass, ...], want: str) -> Finding | None:
    names = [entry.name for entry in seen]
    defaults = [entry.name for entry in seen if entry.default]
    if want and want not in names:
        problem = f"no storage class {want} (there are: {', '.join(names) or 'none'})"
        step = "see the provisioner's chart, or name an existing class in base_services.storage"
        return fail(FailureClass.DEPENDENCY, problem, want, step)
    # with two defaults, Kubernetes takes the newest for claims without a class
    if want and defaults != [want]:
        problem = f"{len(defaults)} default storage classes: {', '.join(defaults) or 'none'}"
        step = "set annotation storageclass.kubernetes.io/is-default-class on one class only"
        return fail(FailureClass.COMPARISON, problem, f"exactly one, {want}", step)
    return None


def _webhooks(seen: tuple[Webhook, ...], namespaces: Iterable[str]) -> Finding | None:
    for namespace in namespaces:
        mine = [hook for hook in seen if hook.service.startswith(f"{namespace}/")]
        bad = next((hook for hook in mine if not hook.ready or not hook.trusted), None)
        if mine and bad is None:
            continue
        problem = f"no webhook of {namespace} is registered"
        if bad is not None:
            lacks = f"{bad.ready} ready endpoints" if not bad.ready else "no CA bundle"
            problem = f"webhook {bad.name} ({bad.service}) has {lacks}"
        step = f"kubectl -n {namespace} get pods,endpointslices; without it every write of its kinds is refused"
        return unknown(FailureClass.DEPENDENCY, problem, "every webhook with a ready endpoint and a CA bundle", step)
    return None


def _volume(claim: VolumeClaim | None, pods: tuple[CheckPod, ...], want: str) -> Finding | None:
    if claim is None:
        step = f"look at the namespace {CHECK_NAMESPACE}"
        return unknown(FailureClass.HEALTH, "the check's claim does not exist yet", "claim pvc", step)
    # a claim's class is immutable, so waiting does not correct it
    if claim.phase == "Lost" or claim.storage_class not in ("", want):
        problem = f"claim is {claim.phase or 'pending'} with class {claim.storage_class or 'none'}"
        step = "see who changes the claim's class (an admission default?)"
        return fail(FailureClass.HEALTH, problem, f"Bound with class {want}", step, final=True)
    pod = next((candidate for candidate in pods if candidate.report), pods[0] if pods else None)
    if claim.phase != "Bound" or not claim.volume or not claim.storage_class:
        return _unbound(claim, pod, want)
    return _nonce(claim, pod)


def _unbound(claim: VolumeClaim, pod: CheckPod | None, want: str) -> Finding:
    last = claim.events[-1] if claim.events else ""
    classless = "" if claim.storage_class else " without a storage class"
    state = f"claim is {claim.phase or 'without a phase'}{classless} {last}".rstrip()
    why = gate_checks.why(pod).text if pod else ""
    waits = f"; pod {pod.name}: {why}" if pod and why else ""
    failure_class = FailureClass.RUNTIME if waits else FailureClass.HEALTH
    step = "read the provisioner's log and the claim's events"
    return unknown(failure_class, state + waits, f"a bound volume of {want}", step)


def _nonce(claim: VolumeClaim, pod: CheckPod | None) -> Finding | None:
    if pod is None or not pod.report:
        return _no_report(claim, pod)
    wrote, read = str(pod.report.get("wrote", "")), str(pod.report.get("read", ""))
    if wrote and wrote == read:
        return None
    problem = f"on {pod.node} the volume {claim.volume} returned {read[:60] or 'nothing'!r}"
    step = "check the file system behind the storage class: it does not keep what is written"
    return fail(FailureClass.HARDWARE, problem, repr(wrote[:60]), step, final=True)


def _no_report(claim: VolumeClaim, pod: CheckPod | None) -> Finding:
    state = f"{pod.name} is {pod.phase} {gate_checks.why(pod).text}".rstrip() if pod else "none"
    seen, expected = f"claim bound to {claim.volume}, pod {state}, no report", "what was written, read back"
    step = "read the log of the check's pod"
    if pod is not None and (pod.ended or pod.reason in RUNTIME_REASONS):
        return fail(FailureClass.RUNTIME, seen, expected, step, final=pod.ended)
    return unknown(FailureClass.HEALTH, seen, expected, step)


def _certificate(certificate: Certificate | None) -> Finding | None:
    if certificate is not None and certificate.ready:
        return None
    state = f"{certificate.reason} {certificate.message}".strip() if certificate else "does not exist yet"
    seen = f"certificate of the check: {state or 'has no condition Ready'}"
    return unknown(FailureClass.DEPENDENCY, seen, "condition Ready", "read the log of cert-manager's controller")
