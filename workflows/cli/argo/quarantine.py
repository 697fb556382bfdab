"""Release of a quarantined node of a run on Argo, by a pod in home: it alone reaches the run's store and cluster."""

from collections.abc import Iterator, Sequence

from steps.contract import quarantine
from workflows.cli.argo import acting
from workflows.cli.hosts import quarantining
from workflows.cli.runs import reading
from workflows.engines import node_release as releasing
from workflows.engines.argo import pull, release_pod

_BY_HAND = f"there: kubectl uncordon NODE, and kubectl annotate node NODE {quarantine.ANNOTATION}-"


def released(away: acting.Away, nodes: Sequence[str], who: str) -> Iterator[str]:
    """Release nodes, fetch the new records, and yield a line for each node.

    Raises CannotRelease before anything is changed, NotReleased, ErrandFailed, NoWorkflow.
    """
    releasing.check_name(who)
    workflow = acting.reached(away)
    if workflow.status.phase == pull.GONE:
        raise releasing.CannotRelease(f"the Workflow of run {away.name} is gone, and with it what reaches its cluster", _BY_HAND)
    reading.brought(away)
    known = releasing.require_quarantined(away.name, nodes, quarantining.listed(away.folder.home, away.name))
    yield from release_pod.release(away.home, workflow, known[nodes[0]].stage, nodes, who)
    reading.brought(away)
