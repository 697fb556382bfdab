"""What a run waits for, and since when: a person, a lock, a place for a pod, an image, or the controller itself."""

from collections.abc import Iterator

from msgspec import Struct

from steps.contract import approval
from steps.errors import StepError
from workflows.engines.argo import watchdog
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import Node, Workflow, seconds
from workflows.render import names

APPROVAL, LOCK, POD, CONTROLLER, RESUME, GATE = "approval", "lock", "pod", "controller", "resume", "gate"


class Wait(Struct, frozen=True, kw_only=True):
    """One thing that is waited for: its kind, what follows `waits for`, since when (UTC seconds), the node concerned."""

    kind: str
    sentence: str
    since: float
    node: str = ""


def waits(home: Home, workflow: Workflow) -> tuple[Wait, ...]:
    """Everything that holds the run up now; empty when its pods are at work or it has ended."""
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
    yield from _pods(home, workflow)


def _gate(node: Node, failed: set[str]) -> Wait:
    """What a suspend node waits for; `failed` are names of nodes that did, among them an announcement of this approval."""
    name = node.display_name
    if not name.startswith(approval.NODE_PREFIX):
        return Wait(kind=GATE, sentence=f"somebody to resume {name}", since=seconds(node.started_at), node=node.name)
    stage = name.removeprefix(approval.NODE_PREFIX).replace("-", "_")
    untold = " (nobody could be told)" if f"{approval.ANNOUNCE}-{names.dashed(stage)}" in failed else ""
    return Wait(kind=APPROVAL, sentence=f"an approval before {stage}{untold}", since=seconds(node.started_at), node=node.name)


def _lock(workflow: Workflow) -> str:
    both = workflow.status.synchronization
    waiting = [one for kind in (both.mutex, both.semaphore) if kind for one in kind.waiting] if both else []
    held = [f"{one.mutex or one.semaphore} held by {one.holder or ', '.join(one.holders) or 'another run'}" for one in waiting]
    told = workflow.status.message
    return f"lock {'; '.join(held)}" if held else f"its turn with Argo{f' ({told})' if told else ''}"


def _pods(home: Home, workflow: Workflow) -> Iterator[Wait]:
    pending = [node for node in watchdog.open_pods(workflow) if node.phase == "Pending"]
    try:
        there = watchdog.pods(home, workflow.metadata.name) if pending else {}
    except StepError:
        there = {}
    for node in pending:
        pod = there.get(node.name)
        reason = (watchdog.waits_for(pod) if pod else "") or node.message or "the pod has not started"
        yield Wait(kind=POD, sentence=f"{node.display_name}: {reason}", since=seconds(node.started_at), node=node.name)
