"""How large a run's Workflow can become: its nodes counted from the plan, weighed by what a real API server was seen to store."""

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
"""The largest Workflow that Argo writes: MAX_WORKFLOW_SIZE of its controller. Larger ones get their nodes compressed first, and
only what is too large even then is an error (hera_argo §2.2)."""

NODE_BYTES = 80
"""What one node adds to the compressed status: 61 to 70 bytes (`tests/bench/scale.py`), and a margin."""

SAID_VERDICT, SAID_ERROR = last_word.LONGEST // 2, last_word.ERROR // 2
"""What a failed node's last word adds, compressed: of a stage's verdict, and of an attempt that ended with an error. Text comes to
less than half (`test_size.py`)."""

TASK_NODES = 1 + 1 + RETRY_LIMIT
"""A task of which every attempt is used up: its Retry node, the first attempt, the retries."""

_FRAME = 4096
"""Metadata, labels and times of the Workflow itself."""


class TooLarge(ValueError):
    """The run would outgrow what Argo can store."""

    hint = "split the fleet into several specs, or run fewer stages at a time (--until, --only)"


def shard_counts(hosts: tuple[Host, ...]) -> dict[str, int]:
    """How many shards each list has that `open` hands out."""
    cut = fleet.shards(hosts)
    every, agents = SHARD_LISTS
    return {every: len(cut), agents: sum(shard[0].role != "server" for shard in cut)}


def nodes(plan: Plan, counts: Mapping[str, int], task_nodes: int = TASK_NODES) -> int:
    """Nodes of the run's status once it has ended; `task_nodes` are those of one task (2: each succeeds at once)."""
    frame = 2 + 3 * task_nodes  # the pipeline and the exit handler; open, report and seal
    return frame + sum(_stage_nodes(stage, counts, task_nodes) for stage in plan.stages)


def _stage_nodes(stage: Stage, counts: Mapping[str, int], task_nodes: int) -> int:
    approval = 0 if stage.approval is None else 1 + task_nodes * (2 if stage.approval.announced == WEBHOOK else 1)
    tasks = sum(1 + counts[step.fan_out] * task_nodes if step.fan_out else task_nodes for step in stage.steps)
    return 1 + approval + tasks


def _said(plan: Plan) -> int:
    """Last words of failed nodes, if each attempt but the last ends with an error, and each stage with a verdict that is no pass.
    Of a fanned-out task the first shard alone has such words, hence they do not grow with the fleet."""
    approvals = sum(0 if stage.approval is None else 1 + (stage.approval.announced == WEBHOOK) for stage in plan.stages)
    tasks = 3 + approvals + sum(len(stage.steps) for stage in plan.stages)  # open, report and seal
    return len(plan.stages) * SAID_VERDICT + tasks * (1 + RETRY_LIMIT) * SAID_ERROR


def largest(plan: Plan, bundle: Bundle) -> int:
    """Bytes to which the run's Workflow can come, compressed, if every task uses up its attempts. Argo keeps a copy of the template
    in the status, which it does not compress."""
    kept = len(msgspec.json.encode(bundle.template["spec"])) + len(msgspec.json.encode(bundle.workflow)) + _FRAME
    lists = sum(len(msgspec.json.encode(list(range(count)))) for count in shard_counts(plan.hosts).values())
    return kept + lists + nodes(plan, shard_counts(plan.hosts)) * NODE_BYTES + _said(plan)


def check(plan: Plan, bundle: Bundle) -> int:
    """`largest`, before anything is submitted. Raises TooLarge."""
    size = largest(plan, bundle)
    if size > LIMIT:
        shards = max(shard_counts(plan.hosts).values())
        raise TooLarge(f"{len(plan.stages)} stages over {shards} shards may come to {size} bytes of Workflow; Argo stores {LIMIT}")
    return size
