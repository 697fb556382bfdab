"""Reads the pods of a functional check with the reports in their termination messages."""

import base64
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import plain_text
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE, CheckPod
from steps.stages.shared.kube_objects import ObjectMeta, Pod
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.shared.probe_containers import ContainerEnd, ContainerStatus

MOST_EVENTS, MESSAGE = 3, 500
"""Most events of a pod that are kept, and most characters of each."""
INDEX = "batch.kubernetes.io/job-completion-index"


def read(kube: KubeReader, check: str, namespace: str = CHECK_NAMESPACE, annotations: Iterable[str] = ()) -> tuple[CheckPod, ...]:
    """Return the pods of one check with their reports and the named annotations, sorted by completion index and name.

    Pods being deleted are left out. Pods that do not run and left no report get their newest Warning events: a pod in
    ContainerCreating says only there what it waits for.
    """
    pods = kube.list(f"/api/v1/namespaces/{namespace}/pods", Pod, labels=f"{CHECK_LABEL}={check}") or ()
    wanted = tuple(annotations)
    # pods of a check that is started again can still be terminating
    check_pods = [_check_pod(pod, wanted) for pod in pods if not pod.metadata.deletion_timestamp]
    return tuple(sorted(with_events(kube, namespace, check_pods), key=lambda pod: (pod.index, pod.name)))


class CommandCheck(Struct, frozen=True, kw_only=True):
    """A check that ran as a command in a pod of the platform: what verb `job` hands to the probe as the argument `output`."""

    pod: str
    text: str = ""
    code: int = -1
    error: str = ""


def executed(arguments: dict[str, Any]) -> tuple[CheckPod, str] | None:
    """Return the pod and the output of a check that ran as a command, None for one that runs in pods of its own.

    The last line of the output is the report that such pods leave as their termination message.
    """
    if "output" not in arguments:
        return None
    command = msgspec.convert(arguments["output"], CommandCheck)
    body, _, last = command.text.rstrip("\n").rpartition("\n")
    try:
        left = msgspec.json.decode(last.encode(), type=dict[str, Any])
    except UNREADABLE_JSON:
        left = {}
    ended = "Succeeded" if left and command.code == 0 else "Failed"
    report = {key: value for key, value in left.items() if key != KEY}  # the output is there itself
    pod = CheckPod(
        name=command.pod, phase=ended, message=plain_text.truncate(plain_text.line(command.error), MESSAGE), report=report
    )
    return pod, body


class _WarningEvent(Struct, frozen=True, rename="camel"):
    """An event with the times that its writer may have set; API servers write `null` for the others."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectMeta = ObjectMeta()
    reason: str | None = ""
    message: str | None = ""
    last_timestamp: str | None = None
    event_time: str | None = None

    @property
    def time(self) -> str:
        """Return when the event happened last, as text that sorts by time."""
        return self.last_timestamp or self.event_time or ""

    @property
    def text(self) -> str:
        """Return the event as one plain line: `Reason: message`."""
        return plain_text.truncate(plain_text.line(f"{self.reason or ''}: {(self.message or '').strip()}"), MESSAGE)


def with_events(kube: KubeReader, namespace: str, pods: Iterable[CheckPod]) -> list[CheckPod]:
    """Return the pods, those that wait without a report with their newest Warning events. One read serves all pods."""
    known = list(pods)
    if not any(_waits(pod) for pod in known):
        return known
    events: defaultdict[str, list[_WarningEvent]] = defaultdict(list)
    for event in kube.list(f"/api/v1/namespaces/{namespace}/events", _WarningEvent, fields="type=Warning") or ():
        events[event.involved_object.name].append(event)
    return [msgspec.structs.replace(pod, events=_newest(events[pod.name])) if _waits(pod) else pod for pod in known]


def _waits(pod: CheckPod) -> bool:
    # events of a pod that runs are about the time before
    return not pod.report and pod.phase not in ("Running", "Succeeded")


def _newest(events: Iterable[_WarningEvent]) -> tuple[str, ...]:
    texts = [event.text for event in sorted(events, key=lambda event: event.time)]
    # kubelet repeats an event under a new name when its message has another id in it
    return tuple(dict.fromkeys(reversed(texts)))[:MOST_EVENTS][::-1]


def _check_pod(pod: Pod, wanted: tuple[str, ...]) -> CheckPod:
    # Kubernetes sets the index as annotation, and as label too since 1.28
    index = pod.metadata.labels.get(INDEX) or pod.metadata.annotations.get(INDEX) or "-1"
    reason, message = _why(pod)
    return CheckPod(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        index=int(index) if index.lstrip("-").isdigit() else -1,
        phase=pod.status.phase,
        reason=reason,
        message=message[:500],
        report=report(pod.status.container_statuses),
        annotations={key: pod.metadata.annotations[key] for key in wanted if key in pod.metadata.annotations},
    )


def report(containers: Iterable[ContainerStatus]) -> dict[str, Any]:
    """Return the JSON object of the first container that left one; empty if no container did."""
    for container in containers:
        ended = container.state.terminated
        if ended is None or not ended.message.strip():
            continue
        try:
            return msgspec.json.decode(ended.message.encode(), type=dict[str, Any])
        except UNREADABLE_JSON:
            continue
    return {}


def _why(pod: Pod) -> tuple[str, str]:
    for entry in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        problem = entry.problem
        if isinstance(problem, ContainerEnd):
            return problem.reason or "Error", f"container {entry.name} ended with {problem.exit_code}: {problem.message}"
        if problem is not None:
            return problem.reason, f"container {entry.name}: {problem.message}"
    if (refused := pod.unscheduled) is not None:
        return refused.reason, refused.message
    return pod.status.reason, pod.status.message


KEY = "packed"
MOST = 4 << 20
"""Most bytes of unpacked text, so that a hostile or broken report cannot fill the memory."""


def unpack_output(report: dict[str, Any]) -> str:
    """Return the tool output that a check pod packed into its report (base64 of gzip); empty if none can be unpacked."""
    packed = report.get(KEY)
    if not isinstance(packed, str):
        return ""
    try:
        raw = base64.b64decode(packed, validate=True)
        # wbits + 16 expects a gzip header; the bound stops a decompression bomb
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(raw, MOST).decode(errors="replace")
    except (ValueError, zlib.error):
        return ""
