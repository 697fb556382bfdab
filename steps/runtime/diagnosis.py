"""Findings of a diagnosis. Each read is independent, so that a refused one does not affect the others.

Records and the time for a diagnosis are limited. Whatever did not fit is counted, never dropped silently.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from steps import timeouts
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.objects.checks import CHECK_LABEL
from steps.contract.plain_text import truncate
from steps.contract.runs.evidence import Diagnosis
from steps.errors import StepError, Temporary
from steps.runtime.diagnosis_objects import (
    MESSAGE,
    CertificateDiagnosis,
    EndpointsDiagnosis,
    EventDiagnosis,
    JobDiagnosis,
    NodeDiagnosis,
    PodDiagnosis,
    events_text,
)
from steps.stages.shared import probe_checks
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.shared.probe_containers import ContainerStatus

T = TypeVar("T")
INSTALL_LABEL = "helmcharts.helm.cattle.io/chart"
"""Label of the pods in which RKE2's helm-controller runs Helm."""
SYSTEM = "kube-system"
MOST_BYTES = 180_000
"""Limit in bytes of all findings of one record, as they are stored."""
MOST_AWAY = 3
"""Number of unanswered reads after which the remaining reads are skipped: each is tried for seconds.

A single one is no reason: the API server answers 500 for the logs of pods whose kubelet is away.
"""
MOST_CHECK_PODS = 8
MOST_GOOD_PODS = 2
"""Number of check pods shown of nodes that passed, for comparison."""
MOST_PODS = 8
"""Number of unhealthy pods shown of one namespace. The first ones are telling; hundreds alike would hide them."""
MOST_OPERANDS = 12
MOST_LINES = 40
LOG_LINES = 80
LOG_CHARACTERS = 6_000
SHORT_LOG = 20


class Findings:
    """Collector of a diagnosis' findings, within limits of bytes and time.

    `most` is the size in bytes up to which the current part may fill the record.
    """

    def __init__(self, kube: KubeReader) -> None:
        self.kube = kube
        self.most = MOST_BYTES
        self._entries: list[Diagnosis] = []
        self._size = self._left_out = self._away = 0
        self._end = time.monotonic() + timeouts.DIAGNOSIS

    def add(self, what: str, source: str, content: str) -> None:
        """Add a finding unless its content is empty."""
        if not content.strip():
            return
        entry = Diagnosis(what=what, source=source, content=content.rstrip())
        size = len(msgspec.json.encode(entry)) + 1
        if self._size + size > self.most:
            self._left_out += 1
            return
        self._size += size
        self._entries.append(entry)

    def read(self, source: str, look: Callable[[], T]) -> T | None:
        """Return the result of `look`; None, with a finding about the error, if the read is refused, unreadable or unanswered."""
        if self._away >= MOST_AWAY or time.monotonic() > self._end:
            self._left_out += 1
            return None
        try:
            return look()
        except (StepError, *UNREADABLE_JSON) as error:
            # each unanswered read took seconds of retries
            self._away += isinstance(error, Temporary)
            self.add("could not be read", source, truncate(str(error), MESSAGE))
            return None

    def list(self, source: str, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...]:
        """Return the objects of a collection; empty if it cannot be read or is not served."""
        return self.read(source, lambda: self.kube.list(path, kind, labels, fields)) or ()

    def entries(self) -> tuple[Diagnosis, ...]:
        """Return all findings, followed by one that counts the findings and reads that were left out, if any."""
        if not self._left_out:
            return tuple(self._entries)
        why = f"at most {MOST_BYTES} bytes a record, {timeouts.DIAGNOSIS:.0f} s of reading, {MOST_AWAY} reads without an answer"
        text = f"{self._left_out} reads or findings: {why}"
        return (*self._entries, Diagnosis(what="left out", source="this diagnosis", content=text))


# ---- check pods ----------------------------------------------------------------------------------------------------------------


def check_pods(findings: Findings, namespace: str, checks: Iterable[str], failing: Sequence[str]) -> None:
    """Add states, reports and logs of a check's pods in any phase, those on failing nodes first."""
    for check in checks:
        jobs(findings, namespace, f"{CHECK_LABEL}={check}")
        members = _of_check(findings, namespace, check)
        bad = [pod for pod in members if pod.spec.node_name in failing or not pod.healthy]
        bad.sort(key=lambda pod: (_rank(pod, failing), pod.metadata.name))
        good = sorted((pod for pod in members if pod not in bad), key=lambda pod: pod.metadata.name)
        few = MOST_GOOD_PODS if bad else MOST_CHECK_PODS
        for pod in (*bad[:MOST_CHECK_PODS], *good[:few]):
            _check_pod(findings, namespace, pod)


def _of_check(findings: Findings, namespace: str, check: str) -> tuple[PodDiagnosis, ...]:
    label, path = f"{CHECK_LABEL}={check}", f"/api/v1/namespaces/{namespace}/pods"
    listed = findings.read(f"pods of check {check}", lambda: findings.kube.list(path, PodDiagnosis, label) or ())
    if listed is not None and not listed:
        findings.add("no pods", f"check {check}", f"no pod in namespace {namespace} carries the label {label}")
    return listed or ()


def _rank(pod: PodDiagnosis, failing: Sequence[str]) -> int:
    return failing.index(pod.spec.node_name) if pod.spec.node_name in failing else len(failing)


def _check_pod(findings: Findings, namespace: str, pod: PodDiagnosis) -> None:
    source = f"Pod {namespace}/{pod.metadata.name}"
    findings.add("check pod", source, pod.text())
    for status in pod.statuses:
        if status.failing or (status.started and status in pod.status.container_statuses):
            log = _logs(findings, namespace, pod, status, LOG_LINES)
            _report(findings, source, status, log)


def _report(findings: Findings, source: str, status: ContainerStatus, log: str) -> None:
    """Add the termination message. The output packed into it is shown if the log is missing."""
    message = status.state.terminated.message if status.state.terminated else ""
    try:
        report = msgspec.json.decode(message, type=dict[str, Any]) if message else {}
    except UNREADABLE_JSON:
        findings.add("termination message", f"{source}, container {status.name}", end(message))
        return
    fields = {key: value for key, value in report.items() if key != probe_checks.KEY}
    findings.add("report", f"{source}, container {status.name}", end("\n".join(flat(fields))))
    if not log:
        findings.add("packed output", f"{source}, container {status.name}", end(probe_checks.unpack_output(report)))


# ---- pods of a namespace -------------------------------------------------------------------------------------------------------


def pods(findings: Findings, namespace: str, failing: Sequence[str], leave: Iterable[str] = (), labels: str = "") -> None:
    """Add findings about the pods of a namespace.

    Pods on failing nodes come first, one line each. The unhealthy ones follow in full, causes and failing nodes first, then logs of
    healthy ones on the first failing nodes. `leave` names checks whose pods are left out.
    """
    excluded = frozenset(leave)
    listed = findings.list(f"pods of namespace {namespace}", f"/api/v1/namespaces/{namespace}/pods", PodDiagnosis, labels)
    others = [pod for pod in listed if pod.metadata.labels.get(CHECK_LABEL, "") not in excluded]
    others.sort(key=lambda pod: (_rank(pod, failing), pod.metadata.name))
    for node in failing:
        lines = [pod.line() for pod in others if pod.spec.node_name == node]
        findings.add("pods", f"node {node}, namespace {namespace}", "\n".join(lines[:MOST_LINES]))
    unhealthy = _varied(pod for pod in others if not pod.healthy)
    for pod in unhealthy[:MOST_PODS]:
        _sick_pod(findings, namespace, pod)
    if len(unhealthy) > MOST_PODS:
        names = " ".join(pod.metadata.name for pod in unhealthy[MOST_PODS : MOST_PODS + MOST_LINES])
        findings.add("more unhealthy pods", f"namespace {namespace}", f"{len(unhealthy) - MOST_PODS}: {names}")
    healthy = [pod for pod in others if pod.spec.node_name in failing and pod.healthy and pod.status.phase == "Running"]
    for pod in healthy[:MOST_OPERANDS]:
        for status in pod.status.container_statuses:
            _logs(findings, namespace, pod, status, SHORT_LOG)


def _varied(sick: Iterable[PodDiagnosis]) -> list[PodDiagnosis]:
    """Return pods that show a cause before pods that wait for something, three of each owner at a time.

    One crash on every node must hide neither another crash nor the pods that wait.
    """
    seen: Counter[str] = Counter()
    order: list[tuple[int, bool, int, PodDiagnosis]] = []
    for pod in sick:
        nth = seen[pod.owner or pod.metadata.name]
        # three pods of each owner, then three more of each, and so on
        order.append((nth // 3, not pod.tells, nth, pod))
        seen[pod.owner or pod.metadata.name] += 1
    return [entry[3] for entry in sorted(order, key=lambda entry: entry[:3])]


def _sick_pod(findings: Findings, namespace: str, pod: PodDiagnosis) -> None:
    source = f"Pod {namespace}/{pod.metadata.name}"
    findings.add("pod state", source, pod.text())
    _events(findings, "events", source, namespace, f"involvedObject.name={pod.metadata.name}")
    for status in pod.statuses:
        if status.failing:
            _logs(findings, namespace, pod, status, LOG_LINES)


def _logs(findings: Findings, namespace: str, pod: PodDiagnosis, status: ContainerStatus, lines: int) -> str:
    """Add the end of a container's log, and of its log before the last restart. Return the end of the current log."""
    name, source = pod.metadata.name, f"Pod {namespace}/{pod.metadata.name}, container {status.name}"
    if not status.started:
        return ""
    log = findings.read(f"log of {source}", lambda: findings.kube.log(namespace, name, status.name, lines)) or ""
    findings.add("log", source, end(log))
    if status.restart_count:
        before = findings.read(f"log of {source}", lambda: findings.kube.log(namespace, name, status.name, lines, True)) or ""
        findings.add("log before the restart", source, end(before) if before != log else "")
    return log


# ---- the rest ------------------------------------------------------------------------------------------------------------------


def node(findings: Findings, name: str) -> None:
    """Add a node's conditions, resources, taints and labels, and the events about it."""
    missing = "the API server does not know it"
    answer = findings.read(f"node {name}", lambda: (findings.kube.get(f"/api/v1/nodes/{name}", NodeDiagnosis),))
    if answer is not None:
        findings.add("node state", f"node {name}", answer[0].text() if answer[0] else missing)
    _events(findings, "events", f"node {name}", "default", f"involvedObject.name={name}")


def warnings(findings: Findings, namespace: str) -> None:
    """Add the newest warning events of a namespace."""
    _events(findings, "warning events", f"namespace {namespace}", namespace, "type=Warning")


def _events(findings: Findings, what: str, source: str, namespace: str, fields: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    findings.add(what, source, events_text(findings.list(f"events of {source}", path, EventDiagnosis, fields=fields)))


def services(findings: Findings, namespace: str) -> None:
    """Add the Services that have an endpoint that is not ready."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    counts: dict[str, tuple[int, int]] = {}
    for endpoint_slice in findings.list(f"endpoints of namespace {namespace}", path, EndpointsDiagnosis):
        ready, total = counts.get(endpoint_slice.service, (0, 0))
        counts[endpoint_slice.service] = (ready + endpoint_slice.ready, total + len(endpoint_slice.endpoints or ()))
    short = [(ready, name, total) for name, (ready, total) in counts.items() if name and (ready < total or not ready)]
    lines = [f"Service {name}: {ready} of {total} endpoints are ready" for ready, name, total in sorted(short)]
    findings.add("Services without all endpoints", f"namespace {namespace}", "\n".join(lines[:MOST_LINES]))


def certificates(findings: Findings, namespace: str) -> None:
    """Add the certificates that cert-manager does not report as ready."""
    path = f"/apis/cert-manager.io/v1/namespaces/{namespace}/certificates"
    bad = [
        certificate
        for certificate in findings.list(f"certificates of namespace {namespace}", path, CertificateDiagnosis)
        if not certificate.ready
    ]
    for certificate in bad[:MOST_PODS]:
        findings.add("certificate not ready", f"Certificate {namespace}/{certificate.metadata.name}", certificate.text())


def installs(findings: Findings) -> None:
    """Add Helm's unhealthy pods, its unfinished Jobs and the events about them.

    They are in kube-system, not in the release's namespace. A Job that gave up has no pods any more.
    """
    pods(findings, SYSTEM, (), labels=INSTALL_LABEL)
    failed = jobs(findings, SYSTEM, INSTALL_LABEL)
    if not failed:
        return
    names = {name for job in failed for name in (job.metadata.name, job.metadata.labels.get(INSTALL_LABEL, ""))}
    events = findings.list(f"events of namespace {SYSTEM}", f"/api/v1/namespaces/{SYSTEM}/events", EventDiagnosis)
    about = [
        event for event in events if event.involved_object.name in names or event.involved_object.name.startswith("helm-install-")
    ]
    findings.add("events", "Helm's installs", events_text(about))


def jobs(findings: Findings, namespace: str, labels: str) -> list[JobDiagnosis]:
    """Add the Jobs that are not complete, with conditions and counts, and return them."""
    listed = findings.list(f"jobs of namespace {namespace}", f"/apis/batch/v1/namespaces/{namespace}/jobs", JobDiagnosis, labels)
    open_jobs = [job for job in listed if not job.complete]
    for job in open_jobs[:MOST_PODS]:
        findings.add("job", f"Job {namespace}/{job.metadata.name}", job.text())
    return open_jobs


# ---- text ----------------------------------------------------------------------------------------------------------------------


def end(text: str, most: int = LOG_CHARACTERS) -> str:
    """Return the last whole lines of a text. A longer single line is cut."""
    return "\n".join(reversed(_fitting(reversed(text.splitlines()), most)))


def begin(text: str, most: int = LOG_CHARACTERS) -> str:
    """Return the first whole lines of a text. A longer single line is cut."""
    return "\n".join(_fitting(text.splitlines(), most))


def _fitting(lines: Iterable[str], most: int) -> list[str]:
    fitting: list[str] = []
    longest = most // 4
    for line in lines:
        short = truncate(line, longest)
        most -= len(short) + 1
        if most < 0:
            break
        fitting.append(short)
    return fitting


def flat(value: Any, path: str = "") -> list[str]:
    """Return data as lines `path.to.field: value`, in the form in which API errors name fields.

    Values are not escaped, so that the redactor recognises secrets in them.
    """
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in flat(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list | tuple) and value:
        return [line for at, item in enumerate(value) for line in flat(item, f"{path}[{at}]")]
    return [f"{path}: {value}"] if path else []
