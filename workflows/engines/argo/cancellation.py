"""Cancel a run; and sweep a run whose exit handler did not run: write its report, seal it, release the target's lease."""

from collections.abc import Callable
from functools import partial

from steps.clients.kube.api import ApiError
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.run_records import Cancelled
from steps.contract.runs import run_seal
from steps.errors import StepError
from workflows.engines.argo import approval_patches, helper_pods
from workflows.engines.argo.home import Home, NoWorkflow, Object
from workflows.engines.argo.workflow_objects import CANCELLED, Workflow
from workflows.render import names

STOP, TERMINATE = "Stop", "Terminate"
"""Shutdown strategies of Argo: Stop still runs the exit handler (report and seal), Terminate does not."""

PARTS = ("report", "seal")
"""Names of the tasks that a sweep runs, in order. The task `seal` also releases the target's lease."""


class AlreadyEnded(ValueError):
    """Exception: the run has ended already, or the home cluster refuses to cancel it."""


class StillRunning(ValueError):
    """Exception: the run to be swept has not ended yet."""

    hint = "cancel it first: bringup cancel RUN"


def cancel(home: Home, run: str, cancelled_by: Cancelled, *, now: bool = False, stored: bool = True) -> Callable[[], object]:
    """Ask Argo's controller to end a run, and record on the Workflow who asked first. Raises AlreadyEnded, NotOurs, Overtaken.

    With `now` the run is terminated at once, without its exit handler. The returned function waits until the name of who asked is
    in the run store, for the report; it raises StepError, NotOurs or NoTemplate if the store cannot be written. It does nothing
    without `stored` (an account that may not create pods), if somebody asked earlier, or if nothing of the run has begun.
    """
    for _ in range(approval_patches.TRIES):
        workflow = home.workflow(run)
        home.check_ours(workflow)
        if workflow.finished:
            raise AlreadyEnded(f"run {run} has ended: {workflow.status.phase}")
        first = CANCELLED not in workflow.metadata.annotations
        keep = _kept(home, workflow, cancelled_by) if first and stored and has_begun(workflow) else lambda: None
        if send_patch(home, workflow, cancel_patch(workflow, cancelled_by if first else None, now=now)):
            return keep
    raise approval_patches.Overtaken(
        f"Workflow {run} changed {approval_patches.TRIES} times while it was to be cancelled", hint="try again"
    )


def has_begun(workflow: Workflow) -> bool:
    """Return True if the run has begun its work; False if it waits, or ended while it waited, for its lock or the controller."""
    status = workflow.status
    return status.phase == "Running" or bool(status.nodes or status.compressed_nodes or status.offload_node_status_version)


def was_never_begun(workflow: Workflow) -> bool:
    """Return True if the run was cancelled before it began, so that there is nothing to report or seal."""
    return workflow.finished and workflow.spec.shutdown == TERMINATE and not has_begun(workflow)


def cancel_patch(workflow: Workflow, cancelled_by: Cancelled | None, *, now: bool) -> Object:
    """Return the patch that cancels a run, and that names who asked unless `cancelled_by` is None."""
    # A run that waits for its lock ignores Stop: it would run its exit handler once the lock is free. Only Terminate ends it at
    # once (Argo's operator.go, releaseLocksForPendingShuttingdownWfs). The resource version is for a run that begins meanwhile.
    waits = not has_begun(workflow)
    strategy = TERMINATE if now or waits or workflow.spec.shutdown == TERMINATE else STOP
    meta: Object = {} if cancelled_by is None else {"annotations": {CANCELLED: canonical(cancelled_by).decode()}}
    meta |= {"resourceVersion": workflow.metadata.resource_version} if waits else {}
    # a suspended Workflow would never get to its exit handler (`ShouldSuspend` in Argo's operator.go)
    return {"spec": {"shutdown": strategy, "suspend": False}, "metadata": meta}


def send_patch(home: Home, workflow: Workflow, patch: Object) -> bool:
    """Send the patch and return True, or False if the Workflow has changed since it was read. Raises AlreadyEnded if refused."""
    run = workflow.metadata.name
    try:
        home.ask(lambda kube: kube.merge(home.workflows(run), patch))
    except ApiError as error:
        if error.status == 409 and "resourceVersion" in patch["metadata"]:
            return False
        raise AlreadyEnded(f"run {run} cannot be cancelled: {error}") from error
    return True


def _kept(home: Home, workflow: Workflow, cancelled_by: Cancelled) -> Callable[[], object]:
    """Start the pod that writes who cancelled into the run store, and return a function that waits for the pod's end.

    The pod starts before the run is told to end, so that the run's report can name the person.
    """
    run = workflow.metadata.name
    key = run_records.cancellation_key(run)
    errand = helper_pods.store_file("cancel", key, canonical(cancelled_by), unless=f"{key} runs/{run}/{run_seal.FILE}")
    try:
        name = helper_pods.begin(home, workflow, errand)
    except (StepError, NoWorkflow) as error:
        return partial(_raise, error)  # the run must be cancelled even if the store cannot be written
    return partial(helper_pods.finish, home, errand, name)


def _raise(error: Exception) -> None:
    raise error


def end_message(workflow: Workflow) -> str:
    """Return how a run ended: who cancelled it, if anybody did and it did not succeed; else Argo's own message."""
    cancelled_by = workflow.metadata.annotations.get(CANCELLED)
    through = workflow.status.phase == "Succeeded"
    return (
        run_records.decode_cancellation(cancelled_by.encode()).sentence if cancelled_by and not through else workflow.status.message
    )


def sweep(home: Home, workflow: Workflow) -> None:
    """Write the report of an ended run and seal it, in pods of their own, as the exit handler does. Repeating it changes nothing.

    Raises StillRunning, HelperPodFailed.
    """
    if not workflow.finished:
        phase = workflow.status.phase or "not begun"
        raise StillRunning(f"run {workflow.metadata.name} is {phase}: only a run that has ended is swept")
    for part in PARTS:
        helper_pods.run(home, workflow, _errand(home, workflow, part))


def _errand(home: Home, workflow: Workflow, part: str) -> helper_pods.HelperPod:
    """Return the helper pod for a task of the exit handler, with Argo's placeholders in its command and environment filled in."""
    template = names.template("run", part)
    templates = home.made_from(workflow)["templates"]
    container = next(candidate["container"] for candidate in templates if candidate["name"] == template)
    values = {
        "{{workflow.name}}": workflow.metadata.name,
        "{{workflow.parameters.reuse}}": "none",
        "{{inputs.parameters.status}}": workflow.status.phase,
    }

    def filled(text: str) -> str:
        for tag, value in values.items():
            text = text.replace(tag, value)
        return text

    command = tuple(filled(word) for word in (*container["command"], *container["args"]))
    environment = {row["name"]: filled(row["value"]) for row in container["env"]}
    return helper_pods.HelperPod(
        purpose=part, command=command, environment=environment, template=template, store_only=False, writes=True
    )
