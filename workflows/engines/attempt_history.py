"""Find the attempts of a run's tasks that were lost, in the nodes that its engine knows: they leave no record in the store."""

from collections.abc import Iterable, Iterator

import msgspec

from steps.contract import plain_text, run_records
from steps.contract.runs import approval
from steps.contract.runs.lost_attempts import LostAttempt, is_lost
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import RunNodeStatus
from workflows.render import names


def lost_attempts(folder: RunFolder, nodes: Iterable[RunNodeStatus]) -> tuple[LostAttempt, ...]:
    """Return the lost attempts among a run's nodes, oldest first; only those of tasks that the copy of the plan here names."""
    templates = dict(_templates(folder))
    lost = [
        LostAttempt(
            stage=templates[node.template][0],
            task=templates[node.template][1],
            shard=_shard(node),
            started=node.started,
            finished=node.finished,
            message=plain_text.line(node.message) or f"{node.phase} without a message",
        )
        for node in nodes
        if node.type == "Pod" and node.finished and node.template in templates and is_lost(node.phase, node.message)
    ]
    return tuple(sorted(lost, key=lambda attempt: attempt.started))


def _shard(node: RunNodeStatus) -> int:
    text = node.inputs.get("shard") or "0"
    return int(text) if text.isdecimal() else 0


def _templates(folder: RunFolder) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the template of each task of the plan with its stage and name."""
    for task in (run_records.OPEN, "report", "seal"):
        yield names.template(run_records.STAGE, task), (run_records.STAGE, task)
    path = folder.inputs / "tasks" / run_records.PLAN_FILE
    plan = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    for stage in plan.get("stages", ()):
        for task in (*approval.TASKS, *(task["name"] for task in stage.get("tasks", ()))):
            yield names.template(stage["id"], task), (stage["id"], task)
