"""Submit a run as one Workflow, find unfinished runs that it supersedes, and check that its Workflow cannot become too large.

The largest possible size is the number of nodes times a weight measured on a real API server (`tests/bench/scale.py`).
"""

import secrets
from collections.abc import Mapping

import msgspec

from steps.clients.kube.api import ApiError
from steps.contract.exit import ExitCode
from steps.contract.fleet import Host
from steps.contract.runs import last_word, revision
from steps.contract.runs.revision import SpecSource
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
from workflows.engines.folders import LONGEST_RUN_NAME
from workflows.plan import run_folders
from workflows.plan.model import Plan
from workflows.render import titles
from workflows.render.bundle import Bundle
from workflows.render.pipeline import SHARD_LISTS
from workflows.render.steps import RETRY_LIMIT
from workflows.stages.stage import WEBHOOK, Stage, Step


class NameTaken(ValueError):
    """Exception: the home cluster has another Workflow of that name, or the name is too long."""

    hint = "follow it with `bringup watch`, or start another run under a new name"


class Unsure(StepError):
    """Exception: the home cluster went away during a submission, so the run may or may not have been submitted.

    It is not temporary, because another try might start a second run.
    """

    exit_code = ExitCode.GATE_FAILED


def workflow(
    name: str,
    plan: Plan,
    bundle: Bundle,
    reuse: str = "none",
    source: SpecSource | None = None,
    owner: OwnerReference | None = None,
) -> Object:
    """Return the manifest of a run's Workflow. `source` says where the spec came from; the Workflow is deleted with `owner`."""
    meta = bundle.template["metadata"]
    owned: Object = {} if owner is None else {"ownerReferences": [msgspec.to_builtins(owner)]}
    return {
        **bundle.workflow,
        "metadata": {
            "name": name,
            "namespace": bundle.workflow["metadata"]["namespace"],
            "labels": {CLUSTER: meta["labels"][CLUSTER], PIPELINE: meta["labels"][PIPELINE]},
            "annotations": {
                **titles.run_annotations(meta["labels"][PIPELINE], plan),
                PLAN: plan.digest,
                OWNER: plan.owner,
                REVISION: plan.revision,
                SUBMISSION: secrets.token_hex(8),
            },
            **owned,
        },
        "spec": {**bundle.workflow["spec"], "arguments": {"parameters": arguments(reuse, revision.token(source))}},
    }


def arguments(reuse: str, source: str) -> list[Object]:
    """Return the parameters with which a run is submitted."""
    return [{"name": "reuse", "value": reuse}, {"name": "source", "value": source}]


def submit(home: Home, manifest: Object) -> Workflow:
    """Create the Workflow of a run and return it as the API server has it.

    Raises NameTaken, Unreachable if the run was certainly not submitted, Unsure if that is unknown.
    """
    name = manifest["metadata"]["name"]
    if len(name) > LONGEST_RUN_NAME:
        raise NameTaken(f"run name {name} has {len(name)} characters, limit {LONGEST_RUN_NAME}")
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
    """Return the Workflow of a submission that got no response. Raises `problem` if it does not exist, Unsure if unknown."""
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
    """Return the first of these Workflows that runs the plan with this digest and is not being cancelled, or None."""
    going_on = (run for run in workflows if not run.spec.shutdown and CANCELLED not in run.metadata.annotations)
    return next((run for run in going_on if run.metadata.annotations.get(PLAN) == digest), None)


def change_owner(home: Home, run: Workflow, owner: OwnerReference) -> None:
    """Replace the owner of a run, with which the run is deleted; a run without an owner stays without one."""
    if run.metadata.owner_references:
        patch = {"metadata": {"ownerReferences": [msgspec.to_builtins(owner)]}}
        home.ask(lambda kube: kube.merge(home.workflows(run.metadata.name), patch))


LIMIT = 1 << 20
"""Largest Workflow in bytes that Argo writes, compressed if necessary: the default of MAX_WORKFLOW_SIZE."""

NODE_BYTES = 80
"""Bytes that one node adds to the compressed status: 61 to 70 were measured (`tests/bench/scale.py`), plus a margin."""

SAID_VERDICT, SAID_ERROR = last_word.LONGEST // 2, last_word.ERROR // 2
"""Compressed bytes of a failed node's last words, for a stage's verdict and for an error: half of the text (`test_size.py`)."""

TASK_NODES = 1 + 1 + RETRY_LIMIT
"""Nodes of a task that used all its attempts: the Retry node, the first attempt, and the retries."""

_FRAME = 4096
"""Bytes reserved for metadata, labels and times of the Workflow itself."""


class TooLarge(ValueError):
    """Exception: the run's Workflow could become larger than Argo can store."""

    hint = "split the fleet into several specs, or run fewer stages at a time (--until, --only)"


def shard_counts(hosts: tuple[Host, ...]) -> dict[str, int]:
    """Return the number of shards in each list that the task `open` outputs, by the list's name."""
    cut = run_folders.shards(hosts)
    all_hosts, agents = SHARD_LISTS
    return {all_hosts: len(cut), agents: sum(shard[0].role != "server" for shard in cut)}


def nodes(plan: Plan, counts: Mapping[str, int], task_nodes: int = TASK_NODES) -> int:
    """Return the number of nodes in the status of the finished run, for lists of shards of these lengths.

    `task_nodes` is the number of nodes per task; 2 if each task succeeds at its first attempt.
    """
    frame = 2 + 3 * task_nodes  # the pipeline and the exit handler; open, report and seal
    return frame + sum(_stage_nodes(stage, counts, task_nodes) for stage in plan.stages)


def _stage_nodes(stage: Stage, counts: Mapping[str, int], task_nodes: int) -> int:
    approval = 0 if stage.approval is None else 1 + task_nodes * (2 if stage.approval.announced == WEBHOOK else 1)
    return 1 + approval + sum(_step_nodes(step, counts, task_nodes) for step in stage.steps)


def _step_nodes(step: Step, counts: Mapping[str, int], task_nodes: int) -> int:
    if step.graph:
        groups = len({task.group for task in step.graph})
        return len(step.graph) * task_nodes + (groups + 1 if groups > 1 else 1)
    return 1 + counts[step.fan_out] * task_nodes if step.fan_out else task_nodes


def _said(plan: Plan) -> int:
    """Return the compressed bytes of all last words together if every attempt fails and no stage passes.

    Only the first shard of a fanned-out task leaves last words, so their size does not grow with the fleet.
    """
    approvals = sum(0 if stage.approval is None else 1 + (stage.approval.announced == WEBHOOK) for stage in plan.stages)
    tasks = 3 + approvals + sum(len(stage.steps) for stage in plan.stages)  # open, report and seal
    builds = sum(
        len(step.graph) for stage in plan.stages for step in stage.steps
    )  # each may fail, with a verdict as short as an error
    return len(plan.stages) * SAID_VERDICT + (tasks * (1 + RETRY_LIMIT) + builds) * SAID_ERROR


def largest_size(plan: Plan, bundle: Bundle) -> int:
    """Return the largest compressed size in bytes that the run's Workflow can reach, which is if every task uses all attempts."""
    template_bytes = len(msgspec.json.encode(bundle.template["spec"])) + len(msgspec.json.encode(bundle.workflow)) + _FRAME
    lists = sum(len(msgspec.json.encode(list(range(count)))) for count in shard_counts(plan.hosts).values())
    return template_bytes + lists + nodes(plan, shard_counts(plan.hosts)) * NODE_BYTES + _said(plan)


def check(plan: Plan, bundle: Bundle) -> int:
    """Return the size computed by `largest_size`. Raises TooLarge if Argo could not store a Workflow of that size."""
    size = largest_size(plan, bundle)
    if size > LIMIT:
        shards = max(shard_counts(plan.hosts).values())
        builds = sum(len(step.graph) for stage in plan.stages for step in stage.steps)
        extent = f"{shards} shards" if not builds else f"{builds} tasks that build packages"
        raise TooLarge(f"{len(plan.stages)} stages over {extent} may come to {size} bytes of Workflow; Argo stores {LIMIT}")
    return size
