"""Stages and tasks of a run, from the plan beside its tasks; a light module, since every view of a run imports it."""

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
    """Return names of the tasks by stage, both in running order; empty if the run has no plan on this machine."""
    path = folder.inputs / "tasks" / run.PLAN_FILE
    if not path.exists():
        return {}
    return {stage.id: [task.name for task in stage.tasks] for stage in msgspec.json.decode(path.read_bytes(), type=_Plan).stages}
