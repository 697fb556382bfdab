"""Collects what a person would look at next: each read on its own, so that one that is refused costs nothing but itself.

A record has its limits, and so has the time that a step spends here: what did not fit is counted, never silently dropped.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from steps import timeouts
from steps.contract.checks import CHECK_LABEL
from steps.contract.evidence import Diagnosis
from steps.errors import StepError, Temporary
from steps.probes import packed
from steps.probes.containers import ContainerStatus
from steps.probes.diagnosis_objects import Certificate, Event, Job, Node, Slice, cut, events_text
from steps.probes.diagnosis_pods import Pod
from steps.probes.reader import KubeReader

T = TypeVar("T")
INSTALL_LABEL = "helmcharts.helm.cattle.io/chart"
"""Label of the pods in which RKE2's helm-controller runs Helm."""
SYSTEM = "kube-system"
MOST_BYTES = 180_000
"""Of all findings of one record, as they are stored."""
MOST_AWAY = 3
"""Reads that got no answer before the rest is left out: each is tried for seconds. One is no reason: a kubelet that is away
makes the API server answer 500 for its pods' logs."""
MOST_CHECK_PODS = 8
MOST_GOOD_PODS = 2
"""Check pods on nodes that passed: for comparison."""
MOST_PODS = 8
"""Unhealthy pods shown of one namespace: the first ones tell; hundreds of the same would bury them."""
MOST_OPERANDS = 12
MOST_LINES = 40
LOG_LINES = 80
LOG_CHARACTERS = 6_000
SHORT_LOG = 20


class Findings:
    """What was collected so far, within its limits; `most` bytes are what the current part may fill up to."""

    def __init__(self, kube: KubeReader) -> None:
        self.kube = kube
        self.most = MOST_BYTES
        self._entries: list[Diagnosis] = []
        self._size = self._left_out = self._away = 0
        self._end = time.monotonic() + timeouts.DIAGNOSIS

    def add(self, what: str, source: str, content: str) -> None:
        """Keep a finding; an empty one is none."""
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
        """What a read gives; None with a note where it is refused, unreadable or unanswered."""
        if self._away >= MOST_AWAY or time.monotonic() > self._end:
            self._left_out += 1
            return None
        try:
            return look()
        except (StepError, msgspec.MsgspecError) as error:
            self._away += isinstance(error, Temporary)
            self.add("could not be read", source, cut(str(error)))
            return None

    def list(self, source: str, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...]:
        """A collection; empty where it cannot be read or is not served."""
        return self.read(source, lambda: self.kube.list(path, kind, labels, fields)) or ()

    def entries(self) -> tuple[Diagnosis, ...]:
        """All findings, with a last one that says how much was left out."""
        if not self._left_out:
            return tuple(self._entries)
        why = f"at most {MOST_BYTES} bytes a record, {timeouts.DIAGNOSIS:.0f} s of reading, {MOST_AWAY} reads without an answer"
        text = f"{self._left_out} reads or findings: {why}"
        return (*self._entries, Diagnosis(what="left out", source="this diagnosis", content=text))


# ---- check pods ----------------------------------------------------------------------------------------------------------------


def check_pods(found: Findings, namespace: str, checks: Iterable[str], failing: Sequence[str]) -> None:
    """States, reports and logs of a check's pods whatever their phase: those of failing nodes first."""
    for check in checks:
        jobs(found, namespace, f"{CHECK_LABEL}={check}")
        every = _of_check(found, namespace, check)
        bad = [pod for pod in every if pod.spec.node_name in failing or not pod.healthy]
        bad.sort(key=lambda pod: (_rank(pod, failing), pod.metadata.name))
        good = sorted((pod for pod in every if pod not in bad), key=lambda pod: pod.metadata.name)
        few = MOST_GOOD_PODS if bad else MOST_CHECK_PODS
        for pod in (*bad[:MOST_CHECK_PODS], *good[:few]):
            _check_pod(found, namespace, pod)


def _of_check(found: Findings, namespace: str, check: str) -> tuple[Pod, ...]:
    label, path = f"{CHECK_LABEL}={check}", f"/api/v1/namespaces/{namespace}/pods"
    every = found.read(f"pods of check {check}", lambda: found.kube.list(path, Pod, label) or ())
    if every is not None and not every:
        found.add("no pods", f"check {check}", f"no pod in namespace {namespace} carries the label {label}")
    return every or ()


def _rank(pod: Pod, failing: Sequence[str]) -> int:
    return failing.index(pod.spec.node_name) if pod.spec.node_name in failing else len(failing)


def _check_pod(found: Findings, namespace: str, pod: Pod) -> None:
    source = f"Pod {namespace}/{pod.metadata.name}"
    found.add("check pod", source, pod.text())
    for status in pod.statuses:
        if status.failing or (status.started and status in pod.status.container_statuses):
            said = _logs(found, namespace, pod, status, LOG_LINES)
            _report(found, source, status, said)


def _report(found: Findings, source: str, status: ContainerStatus, said: str) -> None:
    """The termination message; what is packed into it is shown where the log does not have it."""
    message = status.state.terminated.message if status.state.terminated else ""
    try:
        report = msgspec.json.decode(message, type=dict[str, Any]) if message else {}
    except msgspec.MsgspecError:
        found.add("termination message", f"{source}, container {status.name}", end(message))
        return
    shown = {key: value for key, value in report.items() if key != packed.KEY}
    found.add("report", f"{source}, container {status.name}", end("\n".join(flat(shown))))
    if not said:
        found.add("packed output", f"{source}, container {status.name}", end(packed.text(report)))


# ---- pods of a namespace -------------------------------------------------------------------------------------------------------


def pods(found: Findings, namespace: str, failing: Sequence[str], leave: Iterable[str] = (), labels: str = "") -> None:
    """Pods on failing nodes, one line each; then the unhealthy ones in full, causes and failing nodes first; then the logs of
    healthy ones on the first failing nodes. `leave` names checks, whose pods are left out."""
    left = frozenset(leave)
    listed = found.list(f"pods of namespace {namespace}", f"/api/v1/namespaces/{namespace}/pods", Pod, labels)
    every = [pod for pod in listed if pod.metadata.labels.get(CHECK_LABEL, "") not in left]
    every.sort(key=lambda pod: (_rank(pod, failing), pod.metadata.name))
    for node in failing:
        lines = [pod.line() for pod in every if pod.spec.node_name == node]
        found.add("pods", f"node {node}, namespace {namespace}", "\n".join(lines[:MOST_LINES]))
    sick = _varied(pod for pod in every if not pod.healthy)
    for pod in sick[:MOST_PODS]:
        _sick_pod(found, namespace, pod)
    if len(sick) > MOST_PODS:
        names = " ".join(pod.metadata.name for pod in sick[MOST_PODS : MOST_PODS + MOST_LINES])
        found.add("more unhealthy pods", f"namespace {namespace}", f"{len(sick) - MOST_PODS}: {names}")
    well = [pod for pod in every if pod.spec.node_name in failing and pod.healthy and pod.status.phase == "Running"]
    for pod in well[:MOST_OPERANDS]:
        for status in pod.status.container_statuses:
            _logs(found, namespace, pod, status, SHORT_LOG)


def _varied(sick: Iterable[Pod]) -> list[Pod]:
    """Those that show a cause before those that wait for something, three of each owner before more of it: one crash on every
    node must bury neither another one nor what waits for it."""
    seen: Counter[str] = Counter()
    order: list[tuple[int, bool, int, Pod]] = []
    for pod in sick:
        nth = seen[pod.owner or pod.metadata.name]
        order.append((nth // 3, not pod.tells, nth, pod))
        seen[pod.owner or pod.metadata.name] += 1
    return [entry[3] for entry in sorted(order, key=lambda entry: entry[:3])]


def _sick_pod(found: Findings, namespace: str, pod: Pod) -> None:
    source = f"Pod {namespace}/{pod.metadata.name}"
    found.add("pod state", source, pod.text())
    about = f"involvedObject.name={pod.metadata.name}"
    events = found.list(f"events of {source}", f"/api/v1/namespaces/{namespace}/events", Event, fields=about)
    found.add("events", source, events_text(events))
    for status in pod.statuses:
        if status.failing:
            _logs(found, namespace, pod, status, LOG_LINES)


def _logs(found: Findings, namespace: str, pod: Pod, status: ContainerStatus, lines: int) -> str:
    """The end of a container's log, by its name (a pod of several has no other), and of its log before the last restart."""
    name, source = pod.metadata.name, f"Pod {namespace}/{pod.metadata.name}, container {status.name}"
    if not status.started:
        return ""
    said = found.read(f"log of {source}", lambda: found.kube.log(namespace, name, status.name, lines)) or ""
    found.add("log", source, end(said))
    if status.restart_count:
        before = found.read(f"log of {source}", lambda: found.kube.log(namespace, name, status.name, lines, True)) or ""
        found.add("log before the restart", source, end(before) if before != said else "")
    return said


# ---- the rest ------------------------------------------------------------------------------------------------------------------


def node(found: Findings, name: str) -> None:
    """A node's conditions, resources, taints and labels, and the events about it."""
    missing = "the API server does not know it"
    seen = found.read(f"node {name}", lambda: (found.kube.get(f"/api/v1/nodes/{name}", Node),))
    if seen is not None:
        found.add("node state", f"node {name}", seen[0].text() if seen[0] else missing)
    events = found.list(f"events of node {name}", "/api/v1/namespaces/default/events", Event, fields=f"involvedObject.name={name}")
    found.add("events", f"node {name}", events_text(events))


def warnings(found: Findings, namespace: str) -> None:
    """The newest warning events of a namespace."""
    path = f"/api/v1/namespaces/{namespace}/events"
    found.add(
        "warning events",
        f"namespace {namespace}",
        events_text(found.list(f"events of namespace {namespace}", path, Event, fields="type=Warning")),
    )


def services(found: Findings, namespace: str) -> None:
    """Services of which an endpoint is not ready."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    counts: dict[str, tuple[int, int]] = {}
    for one in found.list(f"endpoints of namespace {namespace}", path, Slice):
        ready, every = counts.get(one.service, (0, 0))
        counts[one.service] = (ready + one.ready, every + len(one.endpoints or ()))
    short = [(ready, name, every) for name, (ready, every) in counts.items() if name and (ready < every or not ready)]
    lines = [f"Service {name}: {ready} of {every} endpoints are ready" for ready, name, every in sorted(short)]
    found.add("Services without all endpoints", f"namespace {namespace}", "\n".join(lines[:MOST_LINES]))


def certificates(found: Findings, namespace: str) -> None:
    """Certificates that cert-manager does not call ready."""
    path = f"/apis/cert-manager.io/v1/namespaces/{namespace}/certificates"
    bad = [one for one in found.list(f"certificates of namespace {namespace}", path, Certificate) if not one.ready]
    for one in bad[:MOST_PODS]:
        found.add("certificate not ready", f"Certificate {namespace}/{one.metadata.name}", one.text())


def installs(found: Findings) -> None:
    """Helm's unhealthy pods, its unfinished Jobs and the events about them: they are in kube-system, and not in the release's
    namespace. A Job that gave up has no pods any more."""
    pods(found, SYSTEM, (), labels=INSTALL_LABEL)
    failed = jobs(found, SYSTEM, INSTALL_LABEL)
    if not failed:
        return
    names = {name for job in failed for name in (job.metadata.name, job.metadata.labels.get(INSTALL_LABEL, ""))}
    events = found.list(f"events of namespace {SYSTEM}", f"/api/v1/namespaces/{SYSTEM}/events", Event)
    about = [one for one in events if one.involved_object.name in names or one.involved_object.name.startswith("helm-install-")]
    found.add("events", "Helm's installs", events_text(about))


def jobs(found: Findings, namespace: str, labels: str) -> list[Job]:
    """Jobs that are not complete, with their conditions and counts."""
    listed = found.list(f"jobs of namespace {namespace}", f"/apis/batch/v1/namespaces/{namespace}/jobs", Job, labels)
    open_jobs = [job for job in listed if not job.complete]
    for job in open_jobs[:MOST_PODS]:
        found.add("job", f"Job {namespace}/{job.metadata.name}", job.text())
    return open_jobs


# ---- text ----------------------------------------------------------------------------------------------------------------------


def end(text: str, most: int = LOG_CHARACTERS) -> str:
    """The last whole lines of a text; a line that is longer on its own is cut."""
    return "\n".join(reversed(_fitting(reversed(text.splitlines()), most)))


def begin(text: str, most: int = LOG_CHARACTERS) -> str:
    """The first whole lines of a text; a line that is longer on its own is cut."""
    return "\n".join(_fitting(text.splitlines(), most))


def _fitting(lines: Iterable[str], most: int) -> list[str]:
    kept: list[str] = []
    longest = most // 4
    for line in lines:
        short = cut(line, longest)
        most -= len(short) + 1
        if most < 0:
            break
        kept.append(short)
    return kept


def flat(value: Any, path: str = "") -> list[str]:
    """Data as lines `path.to.field: value`, as API errors name fields. Text stays as it is, so that a secret in it is found."""
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in flat(item, f"{path}.{key}" if path else str(key))]
    if isinstance(value, list | tuple) and value:
        return [line for at, item in enumerate(value) for line in flat(item, f"{path}[{at}]")]
    return [f"{path}: {value}"] if path else []
