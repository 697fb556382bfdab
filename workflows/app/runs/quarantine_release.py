"""Release quarantined nodes of a run on Argo by a pod in the home cluster, which alone reaches the run's store and cluster."""

from collections.abc import Iterator, Sequence

from steps.contract.runs import quarantine
from workflows.app import quarantine_list
from workflows.app.runs import argo_runs, run_evidence
from workflows.engines import node_release
from workflows.engines.argo import helper_pods, pull

_BY_HAND = f"there: kubectl uncordon NODE, and kubectl annotate node NODE {quarantine.ANNOTATION}-"


def release_on_argo(away: argo_runs.ArgoRun, nodes: Sequence[str], who: str) -> Iterator[str]:
    """Release quarantined nodes, fetch the records about it, and yield a line for each node.

    Raises CannotRelease before anything is changed, NotReleased, HelperPodFailed, NoWorkflow.
    """
    node_release.check_name(who)
    workflow = argo_runs.reached(away)
    if workflow.status.phase == pull.GONE:
        raise node_release.CannotRelease(f"the Workflow of run {away.name} is gone, and with it what reaches its cluster", _BY_HAND)
    run_evidence.brought(away)
    known = node_release.require_quarantined(away.name, nodes, quarantine_list.listed(away.folder.home, away.name))
    yield from helper_pods.release(away.home, workflow, known[nodes[0]].stage, nodes, who)
    run_evidence.brought(away)
