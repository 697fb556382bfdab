"""The stages and tasks of a run, read from the plan that lies beside its tasks; light, since every view of a run needs them."""

import msgspec
from msgspec import Struct

from steps.contract import run
from workflows.engines.folders import RunFolder


class _Task(Struct, frozen=True):
    name: str


class _Stage(Struct, frozen=True):
    id: str
    tasks: tuple[_Task, ...] = ()


class _Plan(Struct, frozen=True):
    stages: tuple[_Stage, ...]


def tasks(folder: RunFolder) -> dict[str, list[str]]:
    """Names of the tasks by stage, both in running order; nothing where the run has no plan here."""
    path = folder.inputs / "tasks" / run.PLAN_FILE
    if not path.exists():
        return {}
    return {stage.id: [task.name for task in stage.tasks] for stage in msgspec.json.decode(path.read_bytes(), type=_Plan).stages}
