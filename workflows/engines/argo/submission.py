"""Submission of a run as one Workflow, and the unfinished runs of the same spec that a new one supersedes."""

import secrets

import msgspec

from steps.clients.kube.api import ApiError
from steps.contract import revision
from steps.contract.exit import ExitCode
from steps.contract.revision import Source
from steps.errors import StepError, Unreachable
from workflows.engines.argo.home import Home, NoWorkflow, Object, decode_workflow
from workflows.engines.argo.workflow_objects import (
    CANCELLED,
    CLUSTER,
    OWNER,
    PIPELINE,
    PLAN,
    REVISION,
    SUBMISSION,
    OwnerReference,
    Workflow,
)
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle

LONGEST_NAME = 63
"""The longest name of a run: Argo copies the name into a label of every pod."""


class NameTaken(ValueError):
    """A Workflow of that name exists already."""

    hint = "follow it with `bringup watch`, or start another run under a new name"


class Unsure(StepError):
    """The home cluster went away during a submission. The error is not temporary, because another try might start a second run."""

    exit_code = ExitCode.GATE_FAILED


def workflow(
    name: str, plan: Plan, bundle: Bundle, reuse: str = "none", source: Source | None = None, owner: OwnerReference | None = None
) -> Object:
    """Return the Workflow of one run. `source` is where its spec came from; the Workflow is deleted together with `owner`."""
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
    """Return the parameters of a run."""
    return [{"name": "reuse", "value": reuse}, {"name": "source", "value": source}]


def submit(home: Home, manifest: Object) -> Workflow:
    """Create the Workflow of a run.

    Raises NameTaken for a taken or too long name, Unreachable if the run was certainly not submitted, Unsure if that is unknown.
    """
    name = manifest["metadata"]["name"]
    if len(name) > LONGEST_NAME:
        raise NameTaken(f"run name {name} has {len(name)} characters, limit {LONGEST_NAME}")
    try:
        return decode_workflow(msgspec.json.encode(home.ask(lambda kube: kube.create(manifest))))
    except Unreachable as error:
        existing = _arrived(home, name, error)
    except ApiError as error:
        if error.status != 409:
            raise
        existing = home.workflow(name)
    if existing.metadata.annotations.get(SUBMISSION) != manifest["metadata"]["annotations"][SUBMISSION]:
        raise NameTaken(f"namespace {home.namespace} of the home cluster has a Workflow {name} already")
    return existing  # an earlier try of this submission arrived, but its response was lost


def _arrived(home: Home, name: str, problem: Unreachable) -> Workflow:
    """Return the Workflow whose submission got no response. Raises `problem` if there is none, Unsure if that cannot be told."""
    try:
        return home.workflow(name)
    except NoWorkflow:
        raise problem from None
    except Unreachable:
        hint = f"once the home cluster answers: bringup watch {name} {home.where.options}"
        raise Unsure(f"whether run {name} was submitted cannot be told: {problem}", hint=hint) from problem


def unfinished_runs(home: Home, name: str, pipeline: str) -> tuple[Workflow, ...]:
    """Return the Workflows of this spec and pipeline that have not ended, the oldest first. Raises Refused, Unreachable."""
    selector = f"{CLUSTER}={name},{PIPELINE}={pipeline},workflows.argoproj.io/completed!=true"
    workflows = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=selector)) or ()
    unfinished = [run for run in workflows if not run.finished]
    return tuple(sorted(unfinished, key=lambda run: run.metadata.creation_timestamp))


def run_of_plan(workflows: tuple[Workflow, ...], digest: str) -> Workflow | None:
    """Return the first of these Workflows that runs exactly this plan and is not being cancelled, or None."""
    candidates = (
        candidate for candidate in workflows if candidate.metadata.annotations.get(PLAN) == digest and not candidate.spec.shutdown
    )
    return next((candidate for candidate in candidates if CANCELLED not in candidate.metadata.annotations), None)


def change_owner(home: Home, run: Workflow, owner: OwnerReference) -> None:
    """Make a run be deleted together with another Workflow than the one that started it; a run without an owner stays without."""
    if run.metadata.owner_references:
        patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(owner)]}}
        home.ask(lambda kube: kube.merge(home.workflows(run.metadata.name), patch))
