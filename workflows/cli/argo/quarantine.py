"""How a node of a run on Argo is released: by a pod of home, which alone reaches the run's store and its cluster."""

from collections.abc import Iterator, Sequence

from steps.contract import quarantine
from workflows.cli.argo import acting
from workflows.cli.hosts import quarantining
from workflows.cli.runs import reading
from workflows.engines import release as releasing
from workflows.engines.argo import pull, release

_BY_HAND = f"there: kubectl uncordon NODE, and kubectl annotate node NODE {quarantine.ANNOTATION}-"


def released(away: acting.Away, nodes: Sequence[str], who: str) -> Iterator[str]:
    """Release nodes and bring what was written of it here; a line for each.

    Raises CannotRelease before anything is changed, NotReleased, ErrandFailed, NoWorkflow.
    """
    releasing.check_name(who)
    workflow = acting.reached(away)
    if workflow.status.phase == pull.GONE:
        raise releasing.CannotRelease(f"the Workflow of run {away.name} is gone, and with it what reaches its cluster", _BY_HAND)
    reading.brought(away)
    known = releasing.check(away.name, nodes, quarantining.listed(away.folder.home, away.name))
    yield from release.release(away.home, workflow, known[nodes[0]].stage, nodes, who)
    reading.brought(away)
