"""Upper bound on the size of a run's Workflow, computed from the plan before the run is submitted.

The bound is the number of nodes times a weight measured on a real API server (`tests/bench/scale.py`).
"""

from collections.abc import Mapping

import msgspec

from steps.contract import last_word
from steps.contract.fleet import Host
from workflows.plan import fleet
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.render.dags import SHARD_LISTS
from workflows.render.steps import RETRY_LIMIT
from workflows.stages.stage import WEBHOOK, Stage

LIMIT = 1 << 20
"""The largest Workflow that Argo writes, compressed if necessary: the default of MAX_WORKFLOW_SIZE."""

NODE_BYTES = 80
"""Bytes that one node adds to the compressed status: 61 to 70 were measured (`tests/bench/scale.py`), plus a margin."""

SAID_VERDICT, SAID_ERROR = last_word.LONGEST // 2, last_word.ERROR // 2
"""Compressed bytes of a failed node's last word (verdict of a stage, error of an attempt): half of the text (`test_size.py`)."""

TASK_NODES = 1 + 1 + RETRY_LIMIT
"""Nodes of a task that used all its attempts: the Retry node, the first attempt, and the retries."""

_FRAME = 4096
"""Bytes for metadata, labels and times of the Workflow itself."""


class TooLarge(ValueError):
    """The run's Workflow could outgrow what Argo can store."""

    hint = "split the fleet into several specs, or run fewer stages at a time (--until, --only)"


def shard_counts(hosts: tuple[Host, ...]) -> dict[str, int]:
    """Return the length of each list of shards that the task `open` outputs."""
    cut = fleet.shards(hosts)
    all_hosts, agents = SHARD_LISTS
    return {all_hosts: len(cut), agents: sum(shard[0].role != "server" for shard in cut)}


def nodes(plan: Plan, counts: Mapping[str, int], task_nodes: int = TASK_NODES) -> int:
    """Return the number of nodes in the status of the finished run.

    `task_nodes` is the number of nodes per task; 2 if each task succeeds at its first attempt.
    """
    frame = 2 + 3 * task_nodes  # the pipeline and the exit handler; open, report and seal
    return frame + sum(_stage_nodes(stage, counts, task_nodes) for stage in plan.stages)


def _stage_nodes(stage: Stage, counts: Mapping[str, int], task_nodes: int) -> int:
    approval = 0 if stage.approval is None else 1 + task_nodes * (2 if stage.approval.announced == WEBHOOK else 1)
    tasks = sum(1 + counts[step.fan_out] * task_nodes if step.fan_out else task_nodes for step in stage.steps)
    return 1 + approval + tasks


def _said(plan: Plan) -> int:
    """Return the compressed bytes of all last words if every attempt fails and no stage passes.

    Only the first shard of a fanned-out task leaves last words, so their size does not grow with the fleet.
    """
    approvals = sum(0 if stage.approval is None else 1 + (stage.approval.announced == WEBHOOK) for stage in plan.stages)
    tasks = 3 + approvals + sum(len(stage.steps) for stage in plan.stages)  # open, report and seal
    return len(plan.stages) * SAID_VERDICT + tasks * (1 + RETRY_LIMIT) * SAID_ERROR


def largest(plan: Plan, bundle: Bundle) -> int:
    """Return the largest size in bytes that the run's Workflow can reach, compressed, if every task uses all its attempts."""
    template_bytes = len(msgspec.json.encode(bundle.template["spec"])) + len(msgspec.json.encode(bundle.workflow)) + _FRAME
    lists = sum(len(msgspec.json.encode(list(range(count)))) for count in shard_counts(plan.hosts).values())
    return template_bytes + lists + nodes(plan, shard_counts(plan.hosts)) * NODE_BYTES + _said(plan)


def check(plan: Plan, bundle: Bundle) -> int:
    """Return the size computed by `largest`. Raises TooLarge if Argo could not store a Workflow of that size."""
    size = largest(plan, bundle)
    if size > LIMIT:
        shards = max(shard_counts(plan.hosts).values())
        raise TooLarge(f"{len(plan.stages)} stages over {shards} shards may come to {size} bytes of Workflow; Argo stores {LIMIT}")
    return size
