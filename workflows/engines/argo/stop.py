"""Ends a run, and does afterwards what its exit handler should have done: report, seal, give the target back."""

import base64
import inspect
from collections.abc import Callable
from functools import partial

from steps.clients.kube.api import ApiError
from steps.contract import cancelled, seal
from steps.contract.cancelled import Cancelled
from steps.contract.canonical import canonical
from steps.errors import StepError
from workflows.engines.argo import answer, pods, write_store
from workflows.engines.argo.home import Home, NoWorkflow, Object
from workflows.engines.argo.objects import CANCELLED, Workflow
from workflows.render import names

STOP, TERMINATE = "Stop", "Terminate"
"""Stop runs the exit handler (report and seal), Terminate does not (hera_argo §2.5)."""

PARTS = ("report", "seal")
"""What a sweep does, in this order; the seal gives the target's lease back."""


class Ended(ValueError):
    """There is nothing to cancel."""


class StillRunning(ValueError):
    """A run is swept when it has ended."""

    hint = "cancel it first: bringup cancel RUN"


def cancel(home: Home, run: str, said: Cancelled, *, now: bool = False, stored: bool = True) -> Callable[[], None]:
    """Ask the controller to end the run; the first who asks is kept, and a run that is to end `now` stays so.

    Raises Ended, NotOurs, Overtaken. Who asked stands on the Workflow from then on. What is returned waits until it is in the store
    too, for the report: it raises StepError, NotOurs or NoTemplate where that cannot be done, which holds nothing else up. Who may
    make no pods leaves that out (`stored`), as does a run of which nothing has begun: it has no report.
    """
    for _ in range(answer.TRIES):
        workflow = home.workflow(run)
        home.check_ours(workflow)
        if workflow.finished:
            raise Ended(f"run {run} has ended: {workflow.status.phase}")
        first = CANCELLED not in workflow.metadata.annotations
        keep = _kept(home, workflow, said) if first and stored and has_begun(workflow) else lambda: None
        if told_home(home, workflow, patched(workflow, said if first else None, now=now)):
            return keep
    raise answer.Overtaken(f"Workflow {run} changed {answer.TRIES} times while it was to be cancelled", hint="try again")


def has_begun(workflow: Workflow) -> bool:
    """Whether anything of it has: nothing has where it waits for its lock or for the controller, or ended while it did."""
    status = workflow.status
    return status.phase == "Running" or bool(status.nodes or status.compressed_nodes or status.offload_node_status_version)


def was_never_begun(workflow: Workflow) -> bool:
    """Whether it was cancelled before anything of it had begun: there is nothing to report or to seal."""
    return workflow.finished and workflow.spec.shutdown == TERMINATE and not has_begun(workflow)


def patched(workflow: Workflow, said: Cancelled | None, *, now: bool) -> Object:
    """Argo leaves a run that waits for its lock waiting when it is to stop: it would begin once the lock is free, with nothing but
    its exit handler. Only `Terminate` ends it where it is (operator.go, releaseLocksForPendingShuttingdownWfs), unless it has begun
    by then: hence the revision."""
    waits = not has_begun(workflow)
    how = TERMINATE if now or waits or workflow.spec.shutdown == TERMINATE else STOP
    meta: Object = {} if said is None else {"annotations": {CANCELLED: canonical(said).decode()}}
    meta |= {"resourceVersion": workflow.metadata.resource_version} if waits else {}
    return {"spec": {"shutdown": how, "suspend": False}, "metadata": meta}


def told_home(home: Home, workflow: Workflow, patch: Object) -> bool:
    """Whether home took it; not where the Workflow is another by now than the patch is for."""
    run = workflow.metadata.name
    try:
        home.ask(lambda kube: kube.merge(home.workflows(run), patch))
    except ApiError as error:
        if error.status == 409 and "resourceVersion" in patch["metadata"]:
            return False
        raise Ended(f"run {run} cannot be cancelled: {error}") from error
    return True


def _kept(home: Home, workflow: Workflow, said: Cancelled) -> Callable[[], None]:
    """Begin to write who cancelled into the store: the pod starts before the run is told, so that its report can say it."""
    run = workflow.metadata.name
    key, content = cancelled.key(run), base64.b64encode(canonical(said)).decode()
    environment = {"BRINGUP_STORE": "/bringup/store", "KEY": key, "CONTENT": content, "UNLESS": f"{key} runs/{run}/{seal.FILE}"}
    command = ("python", "-c", inspect.getsource(write_store))
    errand = pods.Errand(purpose="cancel", command=command, environment=environment, writes=True)
    try:
        name = pods.begin(home, workflow, errand)
    except (StepError, NoWorkflow) as error:
        return partial(_raise, error)

    def finish() -> None:
        pods.finish(home, errand, name)

    return finish


def _raise(error: Exception) -> None:
    raise error


def told(workflow: Workflow) -> str:
    """What is said of how a run ended: who cancelled it, unless it was through by then; else Argo's own message."""
    kept = workflow.metadata.annotations.get(CANCELLED)
    through = workflow.status.phase == "Succeeded"
    return cancelled.decode(kept.encode()).sentence if kept and not through else workflow.status.message


def sweep(home: Home, workflow: Workflow) -> None:
    """Report and seal by pods of their own, as the exit handler does; doing it again gives the same.

    Raises StillRunning, ErrandFailed.
    """
    if not workflow.finished:
        phase = workflow.status.phase or "not begun"
        raise StillRunning(f"run {workflow.metadata.name} is {phase}: only a run that has ended is swept")
    for part in PARTS:
        pods.run(home, workflow, _errand(home, workflow, part))


def _errand(home: Home, workflow: Workflow, part: str) -> pods.Errand:
    """The pod of the exit handler's own template, with what Argo would have filled in."""
    template = names.template("run", part)
    every = home.made_from(workflow)["templates"]
    container = next(one["container"] for one in every if one["name"] == template)
    known = {
        "{{workflow.name}}": workflow.metadata.name,
        "{{workflow.parameters.reuse}}": "none",
        "{{inputs.parameters.status}}": workflow.status.phase,
    }

    def filled(text: str) -> str:
        for tag, value in known.items():
            text = text.replace(tag, value)
        return text

    command = tuple(filled(word) for word in (*container["command"], *container["args"]))
    environment = {row["name"]: filled(row["value"]) for row in container["env"]}
    return pods.Errand(purpose=part, command=command, environment=environment, template=template, store_only=False, writes=True)
