"""Reads the pods of a functional check with what they wrote into their termination messages."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.probes.reader import KubeReader
from steps.probes.workloads import Condition, Meta

CHECK_LABEL = "bringup/check"
INDEX = "batch.kubernetes.io/job-completion-index"
NAMESPACE = "bringup-check"


class Ended(Struct, frozen=True, rename="camel"):
    """A container that ended."""

    reason: str = ""
    message: str = ""
    exit_code: int = 0


class Waiting(Struct, frozen=True):
    """A container that waits."""

    reason: str = ""
    message: str = ""


class States(Struct, frozen=True):
    """A container's state."""

    waiting: Waiting | None = None
    terminated: Ended | None = None


class Container(Struct, frozen=True):
    """One container."""

    name: str = ""
    state: States = States()


class Spec(Struct, frozen=True, rename="camel"):
    """Where the pod runs."""

    node_name: str = ""


class Status(Struct, frozen=True, rename="camel"):
    """Phase and containers."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[Container, ...] = ()
    container_statuses: tuple[Container, ...] = ()


class Pod(Struct, frozen=True):
    """A check pod as the API returns it."""

    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: Status = Status()


def read(kube: KubeReader, check: str, namespace: str = NAMESPACE, annotations: Iterable[str] = ()) -> tuple[CheckPod, ...]:
    """All pods of one check, by completion index and name, with the wanted annotations; those being deleted are left out."""
    found = kube.list(f"/api/v1/namespaces/{namespace}/pods", Pod, labels=f"{CHECK_LABEL}={check}") or ()
    wanted = tuple(annotations)
    made = (_check_pod(pod, wanted) for pod in found if not pod.metadata.deletion_timestamp)
    return tuple(sorted(made, key=lambda pod: (pod.index, pod.name)))


def _check_pod(pod: Pod, wanted: tuple[str, ...]) -> CheckPod:
    index = pod.metadata.labels.get(INDEX) or pod.metadata.annotations.get(INDEX) or "-1"
    reason, message = _why(pod)
    return CheckPod(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        index=int(index) if index.lstrip("-").isdigit() else -1,
        phase=pod.status.phase,
        reason=reason,
        message=message[:500],
        report=_report(pod.status.container_statuses),
        annotations={key: pod.metadata.annotations[key] for key in wanted if key in pod.metadata.annotations},
    )


def _report(containers: Iterable[Container]) -> dict[str, Any]:
    """The JSON object of the first container that left one; anything else is no report."""
    for container in containers:
        ended = container.state.terminated
        if ended is None or not ended.message.strip():
            continue
        try:
            return msgspec.json.decode(ended.message.encode(), type=dict[str, Any])
        except msgspec.MsgspecError:
            continue
    return {}


def _why(pod: Pod) -> tuple[str, str]:
    for entry in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended, waiting = entry.state.terminated, entry.state.waiting
        if ended is not None and ended.exit_code != 0:
            return ended.reason or "Error", f"container {entry.name} ended with {ended.exit_code}: {ended.message}"
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return waiting.reason, f"container {entry.name}: {waiting.message}"
    refused = next((entry for entry in pod.status.conditions if entry.type == "PodScheduled" and entry.status == "False"), None)
    if refused is not None:
        return refused.reason, refused.message
    return pod.status.reason, pod.status.message
