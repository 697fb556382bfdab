"""Runs of one pipeline and spec that have not ended in home: what a newer one supersedes."""

import msgspec

from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import CANCELLED, CLUSTER, PIPELINE, PLAN, Owner, Workflow


def runs(home: Home, name: str, pipeline: str) -> tuple[Workflow, ...]:
    """The Workflows of this spec that have not ended, the oldest first. Raises Refused, Unreachable."""
    selector = f"{CLUSTER}={name},{PIPELINE}={pipeline},workflows.argoproj.io/completed!=true"
    found = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=selector)) or ()
    going = [one for one in found if not one.finished]
    return tuple(sorted(going, key=lambda one: one.metadata.creation_timestamp))


def doing(found: tuple[Workflow, ...], digest: str) -> Workflow | None:
    """The first one that does exactly this plan and that nobody ends; None where none does."""
    same = (one for one in found if one.metadata.annotations.get(PLAN) == digest and not one.spec.shutdown)
    return next((one for one in same if CANCELLED not in one.metadata.annotations), None)


def take_over(home: Home, run: Workflow, owner: Owner) -> None:
    """Let a run end with another Workflow than the one that started it; one that ends with nothing is left alone."""
    if run.metadata.owner_references:
        patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(owner)]}}
        home.ask(lambda kube: kube.merge(home.workflows(run.metadata.name), patch))
