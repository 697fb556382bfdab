"""Runs of one pipeline and spec that have not ended in home: what a newer one supersedes."""

from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import CLUSTER, PIPELINE, Workflow


def runs(home: Home, name: str, pipeline: str) -> tuple[str, ...]:
    """Names of the Workflows of this spec that have not ended, the oldest first. Raises Refused, Unreachable."""
    selector = f"{CLUSTER}={name},{PIPELINE}={pipeline},workflows.argoproj.io/completed!=true"
    found = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=selector)) or ()
    going = [one for one in found if not one.finished]
    return tuple(one.metadata.name for one in sorted(going, key=lambda one: one.metadata.creation_timestamp))
