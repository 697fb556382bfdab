"""Read the pods of a run from the API server, and the short reports ("last words") in their termination messages."""

from msgspec import Struct

from steps.contract.runs import last_word
from steps.contract.runs.last_word import Said
from steps.errors import Refused
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import NODE_NAME, WORKFLOW_LABEL, ResourceMeta, Workflow, WorkflowNode, seconds

MAIN = "main"
"""Argo's name for the container that runs the task."""


class _Terminated(Struct, frozen=True, rename="camel"):
    """The end of a container as the API server reports it: time, exit code and termination message."""

    finished_at: str | None = None
    exit_code: int | None = None
    message: str = ""


class _WaitingReason(Struct, frozen=True):
    """The reason why a container has not started."""

    reason: str = ""
    message: str = ""


class _ContainerState(Struct, frozen=True):
    """The state of a container: terminated, waiting, or neither, which means that it runs."""

    terminated: _Terminated | None = None
    waiting: _WaitingReason | None = None


class _ContainerStatus(Struct, frozen=True):
    """The status of one container of a pod: its name and state."""

    name: str = ""
    state: _ContainerState = _ContainerState()


class _PodCondition(Struct, frozen=True, rename="camel"):
    """A condition in a pod's status, such as PodScheduled."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _RunPodStatus(Struct, frozen=True, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[_PodCondition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class _RunPodSpec(Struct, frozen=True, rename="camel"):
    """The node and the service account of a pod."""

    node_name: str = ""
    service_account_name: str = ""


class RunPod(Struct, frozen=True):
    """A pod of a run, reduced to the fields that are read here."""

    metadata: ResourceMeta
    spec: _RunPodSpec = _RunPodSpec()
    status: _RunPodStatus = _RunPodStatus()

    @property
    def ended(self) -> float:
        """Return when the last container of an ended pod ended, in seconds since the epoch; 0 if the pod has not ended."""
        if self.status.phase not in ("Succeeded", "Failed"):
            return 0.0
        ends = [
            seconds(container.state.terminated.finished_at)
            for container in self.status.container_statuses
            if container.state.terminated
        ]
        return max(ends, default=seconds(self.metadata.creation_timestamp))


def pods(home: Home, run: str, fields: str = "") -> dict[str, RunPod]:
    """Return the pods of a run by the full name of their Argo node; `fields` is an optional field selector."""
    run_pods = home.ask(lambda kube: kube.list(home.core("pods"), RunPod, labels=f"{WORKFLOW_LABEL}={run}", fields=fields)) or ()
    return {pod.metadata.annotations.get(NODE_NAME, pod.metadata.name): pod for pod in run_pods}


class _TaskResult(Struct, frozen=True):
    """A WorkflowTaskResult, in which Argo's executor reports the outputs of a node; its name is the node's id."""

    metadata: ResourceMeta


def reported_nodes(home: Home, run: str) -> frozenset[str]:
    """Return the ids of nodes whose results Argo's executor has reported; empty if this account may not list the reports."""
    path = home.argo("workflowtaskresults")
    try:
        results = home.ask(lambda kube: kube.list(path, _TaskResult, labels=f"{WORKFLOW_LABEL}={run}")) or ()
    except Refused:
        return frozenset()
    return frozenset(result.metadata.name for result in results)


def waits_for(pod: RunPod) -> str:
    """Return why a pod has not started (scheduling, image pull), or "" if its status gives no reason."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if container.state.waiting and container.state.waiting.reason not in ("", "PodInitializing", "ContainerCreating"):
            return f"{container.state.waiting.reason}: {container.state.waiting.message}"
    return ""


def open_pods(workflow: Workflow) -> list[WorkflowNode]:
    """Return the nodes of type Pod that Argo counts as unfinished."""
    return [node for node in workflow.nodes().values() if node.type == "Pod" and not node.finished]


def last_words(home: Home, run: str) -> dict[str, Said]:
    """Return the last words of pods that succeeded, by the full name of their Argo node. Raises Unreachable, Refused.

    Argo deletes such pods after a minute. A failed node has the last words of its pod in its own message (see `of_node`).
    """
    containers = (
        (node, container.state.terminated)
        for node, pod in pods(home, run, "status.phase=Succeeded").items()
        for container in pod.status.container_statuses
        if container.name == MAIN
    )
    words = {node: last_word.read(end.message) for node, end in containers if end is not None}
    return {node: word for node, word in words.items() if word is not None}
