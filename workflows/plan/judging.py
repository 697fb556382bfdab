"""The judges of stages: a judge needs a record of every task of its stage, in running order."""

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
    """Return the stage with a judge that checks all its tasks, those that only change something included."""
    *steps, judge = stage.steps
    named_checks = {check["task"]: check for check in judge.task.arguments["checks"]}
    checks = [_check(stage, step, named_checks.get(step.name, {})) for step in steps]
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
    """Return the judge's arguments for an operation on some hosts: gates of plays judge those hosts alone.

    Quorum and members are narrowed too, unless another gate of the stage judges all nodes.
    """
    plays = {step.name: step.task.arguments for step in stage.steps if step.task.verb is Verb.PLAY}
    # a play with `everyone` reads all hosts, so its gate judges all of them
    narrowed = {name for name, play_arguments in plays.items() if not play_arguments.get("everyone")}
    checks = [
        check | {"select": f"{TOUCHED}{plays[check['task']].get('select', 'all')}"} if check["task"] in narrowed else check
        for check in arguments["checks"]
    ]
    if any(check.get("per_node") and check["task"] not in narrowed for check in checks) or not narrowed:
        return arguments | {"checks": checks}
    members = "agent" if site.touched("agent") else "server"
    needed = site.spec.quorum.share(cast(StageName, stage.id)).needed(len(site.touched(members)))
    return arguments | {"checks": checks, "members": f"{TOUCHED}{members}", "required": f"{TOUCHED}server", "needed": needed}
