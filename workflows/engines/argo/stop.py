"""Ends a run, and does afterwards what its exit handler should have done: report, seal, give the target back."""

from steps.clients.kube_http import ApiError
from workflows.engines.argo import pods
from workflows.engines.argo.home import Home, Object
from workflows.engines.argo.objects import Workflow
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


def cancel(home: Home, run: str, *, now: bool = False) -> None:
    """Ask the controller to end the run; asking twice changes nothing. Raises Ended."""
    workflow = home.workflow(run)
    if workflow.finished:
        raise Ended(f"run {run} has ended: {workflow.status.phase}")
    patch: Object = {"spec": {"shutdown": TERMINATE if now else STOP, "suspend": False}}
    try:
        home.ask(lambda kube: kube.merge(home.workflows(run), patch))
    except ApiError as error:
        raise Ended(f"run {run} cannot be cancelled: {error}") from error


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
    every = home.template(workflow.template)["spec"]["templates"]
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
