"""Runs of one pipeline and spec that have not ended in home: what a newer one supersedes."""

from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import CANCELLED, CLUSTER, PIPELINE, PLAN, Workflow


def runs(home: Home, name: str, pipeline: str) -> tuple[Workflow, ...]:
    """The Workflows of this spec that have not ended, the oldest first. Raises Refused, Unreachable."""
    selector = f"{CLUSTER}={name},{PIPELINE}={pipeline},workflows.argoproj.io/completed!=true"
    found = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=selector)) or ()
    going = [one for one in found if not one.finished]
    return tuple(sorted(going, key=lambda one: one.metadata.creation_timestamp))


def doing(found: tuple[Workflow, ...], digest: str) -> str:
    """Name of the one that does exactly this plan and that nobody ends; empty where none does."""
    same = (one for one in found if one.metadata.annotations.get(PLAN) == digest and not one.spec.shutdown)
    return next((one.metadata.name for one in same if CANCELLED not in one.metadata.annotations), "")
