"""Approvals of a plan: which stage waits for whom, the tasks that announce the wait and check the answer."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from steps.contract import approval as contract
from steps.contract.task import Task, Verb
from workflows.stages.stage import COMMAND, WEBHOOK, Approval, Stage
from workflows.stages.stage import task as stage_task

RUN = "run"
"""The stage name of the tasks that belong to the run as a whole."""

ANNOUNCE_SECONDS = 60
"""One POST, which is given up after `timeouts.ANNOUNCE`; tries again are the engine's."""


def attached(stages: tuple[Stage, ...], approvals: Iterable[Any]) -> tuple[Stage, ...]:
    """Attach each approval to the stage that waits for it; one before a stage that is not planned has nothing to hold."""
    waiting: dict[str, Any] = {approval.before: approval for approval in approvals}
    return tuple(
        dataclasses.replace(stage, approval=_approval(waiting[stage.id])) if stage.id in waiting else stage for stage in stages
    )


def _approval(approval: Any) -> Approval:
    keys = {who.name: (who.key,) if who.key else () for who in approval.approvers}
    told = approval.announce
    how = "" if told is None else WEBHOOK if told.webhook else COMMAND
    return Approval(approvers=keys, timeout_seconds=int(approval.timeout.total_seconds()), announced=how)


def confirm_tasks(stages: tuple[Stage, ...]) -> dict[str, Task]:
    """One for each approval; what is approved is the evidence of the stage before it."""
    tasks = {}
    for before, stage in zip((RUN, *(stage.id for stage in stages)), stages, strict=False):
        if stage.approval is not None:
            keys = {name: list(values) for name, values in stage.approval.approvers.items()}
            arguments = {"approved": before, "approvers": keys}
            tasks[stage.id] = Task(
                stage=stage.id, name=contract.CONFIRM, verb=Verb.CONFIRM, arguments=arguments, deadline_seconds=120
            )
    return tasks


def announce_tasks(cluster: str, approvals: Iterable[Any], stages: tuple[Stage, ...]) -> dict[str, Task]:
    """One for each approval that a webhook hears of."""
    tasks = {}
    private = {one.before for one in approvals if one.announce is not None and one.announce.ca is not None}
    for before, stage in zip((RUN, *(stage.id for stage in stages)), stages, strict=False):
        if stage.approval is not None and stage.approval.announced == WEBHOOK:
            names, file = list(stage.approval.approvers), contract.webhook_file(stage.id)
            arguments = {"cluster": cluster, "approvers": names, "webhook": file, "approved": before}
            arguments |= {"ca": contract.ca_file(stage.id)} if stage.id in private else {}
            tasks[stage.id] = stage_task(stage.id, contract.ANNOUNCE, Verb.ANNOUNCE, deadline=ANNOUNCE_SECONDS, arguments=arguments)
    return tasks
