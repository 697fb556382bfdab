"""What a stage's judge must have seen: a record of every task of the stage, in running order, each in its own way."""

import dataclasses
from typing import Any

import msgspec

from steps.contract.task import Verb
from workflows.stages.stage import Stage, Step

NODES = "nodes"
"""Name of the task whose gate judges nodes; plays judge their hosts as well."""


def complete(stage: Stage) -> Stage:
    """The stage with a judge that counts all its tasks: those that only change something come with their own refusals."""
    *steps, judge = stage.steps
    named = {check["task"]: check for check in judge.task.arguments["checks"]}
    checks = [_check(stage, step, named.get(step.name, {})) for step in steps]
    arguments = {**judge.task.arguments, "checks": checks}
    task = msgspec.structs.replace(judge.task, arguments=arguments)
    return dataclasses.replace(stage, steps=(*steps, dataclasses.replace(judge, task=task)))


def _check(stage: Stage, step: Step, given: dict[str, Any]) -> dict[str, Any]:
    check = {"task": step.name, "gate": f"{stage.id}/{step.name}", **given}
    check |= {"fanned": True} if step.fan_out else {}
    return check | ({"per_node": True} if step.task.verb is Verb.PLAY or step.name == NODES else {})
