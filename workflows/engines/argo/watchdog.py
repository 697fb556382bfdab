"""Sees what Argo itself leaves silent: pods that ended without their result arriving, pods of lost nodes, an absent controller."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from steps import timeouts
from steps.errors import StepError
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import NODE_NAME, WORKFLOW_LABEL, Meta, Node, Workflow, seconds

LATE = timeouts.RESULT_LATE


class Terminated(Struct, frozen=True, rename="camel"):
    """How a container ended."""

    finished_at: str | None = None
    exit_code: int | None = None
    message: str = ""


class Waiting(Struct, frozen=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True):
    """One of the states of a container."""

    terminated: Terminated | None = None
    waiting: Waiting | None = None


class ContainerStatus(Struct, frozen=True):
    """A container of a pod."""

    name: str = ""
    state: ContainerState = ContainerState()


class Condition(Struct, frozen=True, rename="camel"):
    """A condition of a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(Struct, frozen=True, rename="camel"):
    """What is known of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(Struct, frozen=True, rename="camel"):
    """Where a pod runs and as whom."""

    node_name: str = ""
    service_account_name: str = ""


class Pod(Struct, frozen=True):
    """A pod of a run."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> float:
        """When its last container ended; 0 while one runs."""
        if self.status.phase not in ("Succeeded", "Failed"):
            return 0.0
        ends = [seconds(one.state.terminated.finished_at) for one in self.status.container_statuses if one.state.terminated]
        return max(ends, default=seconds(self.metadata.creation_timestamp))


def pods(home: Home, run: str, fields: str = "") -> dict[str, Pod]:
    """The pods of a run by the full name of their node; those alone that a field selector takes."""
    found = home.ask(lambda kube: kube.list(home.core("pods"), Pod, labels=f"{WORKFLOW_LABEL}={run}", fields=fields)) or ()
    return {pod.metadata.annotations.get(NODE_NAME, pod.metadata.name): pod for pod in found}


def waits_for(pod: Pod) -> str:
    """Why a pod has not started, as far as it tells; empty when it does not."""
    for one in pod.status.conditions:
        if one.type == "PodScheduled" and one.status == "False":
            return f"{one.reason}: {one.message}"
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if container.state.waiting and container.state.waiting.reason not in ("", "PodInitializing", "ContainerCreating"):
            return f"{container.state.waiting.reason}: {container.state.waiting.message}"
    return ""


def open_pods(workflow: Workflow) -> list[Node]:
    """Pod nodes that Argo counts as unfinished."""
    return [node for node in workflow.nodes().values() if node.type == "Pod" and not node.finished]


@dataclass
class Watchdog:
    """Looks at the pods of a run now and then, and says each thing once."""

    home: Home
    late: float = LATE
    _said: set[str] = field(default_factory=set)

    def look(self, workflow: Workflow) -> Iterator[str]:
        """Sentences that have not been said yet; nothing when the pods cannot be read."""
        try:
            found = list(self._sentences(workflow))
        except StepError:
            return
        yield from (sentence for sentence in found if sentence not in self._said)
        self._said.update(found)

    def _sentences(self, workflow: Workflow) -> Iterator[str]:
        now = time.time()
        if not workflow.status.phase and now - seconds(workflow.metadata.creation_timestamp) > self.late:
            yield "no workflow-controller has taken the run yet: is one running, and does it serve this namespace?"
        waiting = open_pods(workflow)
        there = pods(self.home, workflow.metadata.name) if waiting else {}
        for node in waiting:
            pod = there.get(node.name)
            if pod is not None:
                yield from self._pod(node, pod, now)

    def _pod(self, node: Node, pod: Pod, now: float) -> Iterator[str]:
        name = pod.metadata.name
        if pod.ended and now - pod.ended > self.late:
            account = pod.spec.service_account_name or "default"
            yield (
                f"pod {name} ended, but Argo has not got its result ({node.display_name} is {node.phase}): may ServiceAccount "
                f"{account} create and patch workflowtaskresults? Argo gives up by itself after TASK_RESULT_TIMEOUT_DURATION"
            )
        elif pod.metadata.deletion_timestamp and now - seconds(pod.metadata.deletion_timestamp) > self.late:
            yield (
                f"pod {name} is being deleted but does not go: node {pod.spec.node_name} does not answer; once that is certainly "
                "off, give it the taint node.kubernetes.io/out-of-service, and Argo tries the task again"
            )
