"""Submits a run: one Workflow that refers to its template by name; a name that is taken is refused, a lost answer is not."""

import secrets

import msgspec

from steps.clients.kube_http import ApiError
from workflows.engines.argo.home import Home, Object, decoded
from workflows.engines.argo.objects import CLUSTER, OWNER, PIPELINE, PLAN, REVISION, SUBMISSION, Workflow
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle

LONGEST_NAME = 63
"""Argo writes the name into a label of every pod."""


class NameTaken(ValueError):
    """There is a Workflow of that name already."""

    hint = "follow it with `bringup watch`, or start another run under a new name"


def workflow(name: str, plan: Plan, bundle: Bundle, reuse: str = "none") -> Object:
    """The Workflow of one run."""
    meta = bundle.template["metadata"]
    return {
        **bundle.workflow,
        "metadata": {
            "name": name,
            "namespace": bundle.workflow["metadata"]["namespace"],
            "labels": {CLUSTER: meta["labels"][CLUSTER], PIPELINE: meta["labels"][PIPELINE]},
            "annotations": {PLAN: plan.digest, OWNER: plan.owner, REVISION: plan.revision, SUBMISSION: secrets.token_hex(8)},
        },
        "spec": {**bundle.workflow["spec"], "arguments": {"parameters": [{"name": "reuse", "value": reuse}]}},
    }


def submit(home: Home, manifest: Object) -> Workflow:
    """Create it. Raises NameTaken, ValueError for a name that is too long."""
    name = manifest["metadata"]["name"]
    if len(name) > LONGEST_NAME:
        raise NameTaken(f"run name {name} has {len(name)} characters, limit {LONGEST_NAME}")
    try:
        return decoded(msgspec.json.encode(home.ask(lambda kube: kube.create(manifest))))
    except ApiError as error:
        if error.status != 409:
            raise
    there = home.workflow(name)
    if there.metadata.annotations.get(SUBMISSION) != manifest["metadata"]["annotations"][SUBMISSION]:
        raise NameTaken(f"namespace {home.namespace} of the home cluster has a Workflow {name} already")
    return there  # an earlier try of this very submission arrived, its answer did not
