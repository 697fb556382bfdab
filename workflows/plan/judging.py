"""What a stage's judge must have seen: a record of every task of the stage, in running order, each in its own way."""

import dataclasses
from typing import Any, cast

import msgspec

from steps.contract.fleet import TOUCHED
from steps.contract.task import Verb
from workflows.spec.fields import StageName
from workflows.stages.site import Site
from workflows.stages.stage import Stage, Step

NODES = "nodes"
"""Name of the task whose gate judges nodes; plays judge their hosts as well."""


def complete(stage: Stage, site: Site) -> Stage:
    """The stage with a judge that counts all its tasks: those that only change something come with their own refusals."""
    *steps, judge = stage.steps
    named = {check["task"]: check for check in judge.task.arguments["checks"]}
    checks = [_check(stage, step, named.get(step.name, {})) for step in steps]
    arguments = {**judge.task.arguments, "checks": checks}
    if site.operation.is_partial:
        arguments = _partial(stage, arguments, site)
    task = msgspec.structs.replace(judge.task, arguments=arguments)
    return dataclasses.replace(stage, steps=(*steps, dataclasses.replace(judge, task=task)))


def _check(stage: Stage, step: Step, given: dict[str, Any]) -> dict[str, Any]:
    check = {"task": step.name, "gate": f"{stage.id}/{step.name}", **given}
    check |= {"fanned": True} if step.fan_out else {}
    return check | ({"per_node": True} if step.task.verb is Verb.PLAY or step.name == NODES else {})


def _partial(stage: Stage, arguments: dict[str, Any], site: Site) -> dict[str, Any]:
    """A judge where plays touch some hosts alone: their gates are about those, and so is a stage that has no other node gate."""
    plays = {step.name: step.task.arguments for step in stage.steps if step.task.verb is Verb.PLAY}
    narrowed = {name for name, told in plays.items() if not told.get("everyone")}
    checks = [
        check | {"select": f"{TOUCHED}{plays[check['task']].get('select', 'all')}"} if check["task"] in narrowed else check
        for check in arguments["checks"]
    ]
    if any(check.get("per_node") and check["task"] not in narrowed for check in checks) or not narrowed:
        return arguments | {"checks": checks}
    members = "agent" if site.touched("agent") else "server"
    needed = site.spec.quorum.share(cast(StageName, stage.id)).needed(len(site.touched(members)))
    return arguments | {"checks": checks, "members": f"{TOUCHED}{members}", "required": f"{TOUCHED}server", "needed": needed}
