"""Find what a run on Argo waits for (approval, lock, pod, controller), and problems that Argo does not report."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from steps import timeouts
from steps.contract.runs import approval
from steps.errors import StepError
from workflows.engines.argo import run_pods
from workflows.engines.argo.home import Home
from workflows.engines.argo.run_pods import RunPod
from workflows.engines.argo.workflow_objects import Workflow, WorkflowNode, seconds
from workflows.render import names

APPROVAL, LOCK, POD, CONTROLLER, RESUME, GATE = "approval", "lock", "pod", "controller", "resume", "gate"
LATE = timeouts.RESULT_LATE
"""Seconds after which a change that should have come counts as overdue."""
LONGEST_BACKOFF = 300.0
"""Longest wait in seconds between two attempts of a task: `RETRY_MOST` of `render.steps`, whose import would load Hera."""


class Wait(Struct, frozen=True, kw_only=True):
    """Something that a run waits for: its kind, the words after "waits for", since when (seconds since the epoch), the node."""

    kind: str
    sentence: str
    since: float
    node: str = ""


def find_waits(home: Home, workflow: Workflow) -> tuple[Wait, ...]:
    """Return everything that the run waits for now; empty if only working pods are open or the run has ended."""
    return () if workflow.finished else tuple(_waits(home, workflow))


def _waits(home: Home, workflow: Workflow) -> Iterator[Wait]:
    created = seconds(workflow.metadata.creation_timestamp)
    if not workflow.status.phase:
        yield Wait(kind=CONTROLLER, sentence="the workflow-controller to take it", since=created)
    elif workflow.status.phase == "Pending":
        yield Wait(kind=LOCK, sentence=_lock(workflow), since=seconds(workflow.status.started_at) or created)
    if workflow.spec.suspend:
        yield Wait(kind=RESUME, sentence="somebody to resume the whole run (`argo resume`)", since=created)
    failed = {node.display_name for node in workflow.nodes().values() if node.phase in ("Failed", "Error")}
    for node in sorted(workflow.nodes().values(), key=lambda node: (node.started_at or "", node.name)):
        if node.is_open_gate:
            yield _gate(node, failed)
    if idle := idle_since(workflow, time.time()):
        yield Wait(kind=CONTROLLER, sentence=AWAY, since=idle)
    yield from _pods(home, workflow)


AWAY = "the workflow-controller, which has not acted on what has ended: is it running?"


def idle_since(workflow: Workflow, now: float) -> float:
    """Return since when only Argo's controller could go on with the run (Unix time); 0 if anything else is open or it is not late.

    Nothing else can go on if every pod has ended and nobody is waited for; a retry that backs off is waited for.
    """
    nodes = workflow.nodes().values()
    if workflow.finished or workflow.status.phase != "Running" or workflow.spec.suspend or not nodes:
        return 0.0
    if any(not node.finished and node.type in ("Pod", "Suspend") for node in nodes):
        return 0.0
    last = max((seconds(node.finished_at) for node in nodes if node.finished_at), default=0.0)
    backs_off = any(node.type == "Retry" and not node.finished for node in nodes)
    late = LATE + (LONGEST_BACKOFF if backs_off else 0.0)
    return last if last and now - last > late else 0.0


def _gate(node: WorkflowNode, failed: set[str]) -> Wait:
    """Describe an open suspend node as something that the run waits for.

    `failed` holds the names of failed nodes, among them a failed announcement of this approval.
    """
    name = node.display_name
    if not name.startswith(approval.NODE_PREFIX):
        return Wait(kind=GATE, sentence=f"somebody to resume {name}", since=seconds(node.started_at), node=node.name)
    stage = name.removeprefix(approval.NODE_PREFIX).replace("-", "_")
    untold = " (its announcement failed)" if f"{approval.ANNOUNCE}-{names.dashed(stage)}" in failed else ""
    return Wait(kind=APPROVAL, sentence=f"an approval before {stage}{untold}", since=seconds(node.started_at), node=node.name)


def _lock(workflow: Workflow) -> str:
    both = workflow.status.synchronization
    waiting = [waiter for kind in (both.mutex, both.semaphore) if kind for waiter in kind.waiting] if both else []
    holders = [
        f"{waiter.mutex or waiter.semaphore} held by {waiter.holder or ', '.join(waiter.holders) or 'another run'}"
        for waiter in waiting
    ]
    message = workflow.status.message
    return f"lock {'; '.join(holders)}" if holders else f"its turn with Argo{f' ({message})' if message else ''}"


def _pods(home: Home, workflow: Workflow) -> Iterator[Wait]:
    pending = [node for node in run_pods.open_pods(workflow) if node.phase == "Pending"]
    try:
        pods_by_node = run_pods.pods(home, workflow.metadata.name) if pending else {}
    except StepError:
        pods_by_node = {}
    for node in pending:
        pod = pods_by_node.get(node.name)
        reason = (run_pods.waits_for(pod) if pod else "") or node.message or "the pod has not started"
        yield Wait(kind=POD, sentence=f"{node.display_name}: {reason}", since=seconds(node.started_at), node=node.name)


@dataclass
class Watchdog:
    """Checker of a run's pods for problems that Argo does not report; it reports each problem once."""

    home: Home
    late: float = LATE
    _said: set[str] = field(default_factory=set)

    def look(self, workflow: Workflow) -> Iterator[str]:
        """Yield sentences about newly found stuck pods or an absent controller; nothing if the pods cannot be listed."""
        try:
            sentences = list(self._sentences(workflow))
        except StepError:
            return
        yield from (sentence for sentence in sentences if sentence not in self._said)
        self._said.update(sentences)

    def _sentences(self, workflow: Workflow) -> Iterator[str]:
        now = time.time()
        if not workflow.status.phase and now - seconds(workflow.metadata.creation_timestamp) > self.late:
            yield "no workflow-controller has taken the run yet: is one running, and does it serve this namespace?"
        if idle_since(workflow, now):
            yield f"the run waits for {AWAY}"
        waiting = run_pods.open_pods(workflow)
        pods_by_node = run_pods.pods(self.home, workflow.metadata.name) if waiting else {}
        reported: frozenset[str] | None = None
        for node in waiting:
            pod = pods_by_node.get(node.name)
            if pod is None:
                continue
            if pod.ended and now - pod.ended > self.late:
                reported = run_pods.reported_nodes(self.home, workflow.metadata.name) if reported is None else reported
                yield self._overdue(workflow, node, pod, reported)
            else:
                yield from self._pod(pod, now)

    def _overdue(self, workflow: Workflow, node: WorkflowNode, pod: RunPod, reported: frozenset[str]) -> str:
        """Return why a node is not finished although its pod has ended: its result is missing, or nobody has taken it in."""
        # https://github.com/argoproj/argo-workflows/issues/12103: without its WorkflowTaskResult a completed pod stays Running
        name = pod.metadata.name
        if node.id in reported:
            return f"pod {name} ended and reported its result, but {node.display_name} is {node.phase}: {AWAY}"
        return (
            f"pod {name} ended, but its result has not reached Argo ({node.display_name} is {node.phase}): may ServiceAccount "
            f"{self._reporter(workflow, pod)} create and patch workflowtaskresults, and does the workflow-controller run? "
            "Argo gives up by itself after TASK_RESULT_TIMEOUT_DURATION"
        )

    def _reporter(self, workflow: Workflow, pod: RunPod) -> str:
        """Return the account as which Argo's executor reports results: that of the template's executor, else the pod's own."""
        try:
            executor = self.home.made_from(workflow).get("executor") or {}
        except (StepError, ValueError):
            executor = {}
        return executor.get("serviceAccountName") or pod.spec.service_account_name or "default"

    def _pod(self, pod: RunPod, now: float) -> Iterator[str]:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp and now - seconds(pod.metadata.deletion_timestamp) > self.late:
            yield (
                f"pod {name} is being deleted but does not disappear: node {pod.spec.node_name} does not answer; once that is "
                "certainly off, give it the taint node.kubernetes.io/out-of-service, and Argo tries the task again"
            )
