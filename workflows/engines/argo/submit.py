"""Submits a run: one Workflow that refers to its template by name; a name that is taken is refused, a lost answer is not."""

import secrets

import msgspec

from steps.clients.kube.api import ApiError
from steps.contract import revision
from steps.contract.exit import ExitCode
from steps.contract.revision import Source
from steps.errors import StepError, Unreachable
from workflows.engines.argo.home import Home, NoWorkflow, Object, decoded
from workflows.engines.argo.objects import CLUSTER, OWNER, PIPELINE, PLAN, REVISION, SUBMISSION, Owner, Workflow
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle

LONGEST_NAME = 63
"""Argo writes the name into a label of every pod."""


class NameTaken(ValueError):
    """There is a Workflow of that name already."""

    hint = "follow it with `bringup watch`, or start another run under a new name"


class Unsure(StepError):
    """The home cluster went away in the midst of a submission. Not temporary: trying again might start a second run."""

    exit_code = ExitCode.GATE_FAILED


def workflow(
    name: str, plan: Plan, bundle: Bundle, reuse: str = "none", source: Source | None = None, owner: Owner | None = None
) -> Object:
    """The Workflow of one run; `source` is where its spec came from, `owner` what it ends with."""
    meta = bundle.template["metadata"]
    owned: Object = {} if owner is None else {"ownerReferences": [msgspec.to_builtins(owner)]}
    return {
        **bundle.workflow,
        "metadata": {
            "name": name,
            "namespace": bundle.workflow["metadata"]["namespace"],
            "labels": {CLUSTER: meta["labels"][CLUSTER], PIPELINE: meta["labels"][PIPELINE]},
            "annotations": {PLAN: plan.digest, OWNER: plan.owner, REVISION: plan.revision, SUBMISSION: secrets.token_hex(8)},
            **owned,
        },
        "spec": {**bundle.workflow["spec"], "arguments": {"parameters": arguments(reuse, revision.token(source))}},
    }


def arguments(reuse: str, source: str) -> list[Object]:
    """The parameters of a run."""
    return [{"name": "reuse", "value": reuse}, {"name": "source", "value": source}]


def submit(home: Home, manifest: Object) -> Workflow:
    """Create it. Raises NameTaken (also for a name that is too long), Unsure, Unreachable when it certainly was not submitted."""
    name = manifest["metadata"]["name"]
    if len(name) > LONGEST_NAME:
        raise NameTaken(f"run name {name} has {len(name)} characters, limit {LONGEST_NAME}")
    try:
        return decoded(msgspec.json.encode(home.ask(lambda kube: kube.create(manifest))))
    except Unreachable as error:
        there = _arrived(home, name, error)
    except ApiError as error:
        if error.status != 409:
            raise
        there = home.workflow(name)
    if there.metadata.annotations.get(SUBMISSION) != manifest["metadata"]["annotations"][SUBMISSION]:
        raise NameTaken(f"namespace {home.namespace} of the home cluster has a Workflow {name} already")
    return there  # an earlier try of this very submission arrived, its answer did not


def _arrived(home: Home, name: str, problem: Unreachable) -> Workflow:
    """The Workflow whose submission was not answered. Raises that problem when it is not there, Unsure when that cannot be told."""
    try:
        return home.workflow(name)
    except NoWorkflow:
        raise problem from None
    except Unreachable:
        hint = f"once the home cluster answers: bringup watch {name} {home.where.options}"
        raise Unsure(f"whether run {name} was submitted cannot be told: {problem}", hint=hint) from problem
