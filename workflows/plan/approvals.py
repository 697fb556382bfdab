"""Approvals of a plan: the stages that wait, and the tasks that announce the wait and verify the answer."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from steps.contract import approval as contract
from steps.contract.task import Task, Verb
from workflows.stages.stage import COMMAND, WEBHOOK, Approval, Stage
from workflows.stages.stage import task as stage_task

RUN = "run"
"""Stage name of the tasks that belong to the run as a whole."""

ANNOUNCE_SECONDS = 60
"""Time for one POST, which `timeouts.ANNOUNCE` bounds; the engine retries."""


def attach_approvals(stages: tuple[Stage, ...], approvals: Iterable[Any]) -> tuple[Stage, ...]:
    """Return the stages, each with the approval that it waits for. An approval before a stage outside the plan is dropped."""
    waiting: dict[str, Any] = {approval.before: approval for approval in approvals}
    return tuple(
        dataclasses.replace(stage, approval=_approval(waiting[stage.id])) if stage.id in waiting else stage for stage in stages
    )


def _approval(approval: Any) -> Approval:
    keys = {approver.name: (approver.key,) if approver.key else () for approver in approval.approvers}
    announcement = approval.announce
    channel = "" if announcement is None else WEBHOOK if announcement.webhook else COMMAND
    return Approval(approvers=keys, timeout_seconds=int(approval.timeout.total_seconds()), announced=channel)


def confirm_tasks(stages: tuple[Stage, ...]) -> dict[str, Task]:
    """Return the task that verifies each approval, by stage; the evidence of the stage before is what gets approved."""
    tasks = {}
    for before, stage, approval in _waiting(stages):
        keys = {name: list(values) for name, values in approval.approvers.items()}
        arguments = {"approved": before, "approvers": keys}
        tasks[stage] = stage_task(stage, contract.CONFIRM, Verb.CONFIRM, deadline=120, arguments=arguments)
    return tasks


def _waiting(stages: tuple[Stage, ...]) -> Iterator[tuple[str, str, Approval]]:
    """Yield what gets approved, the stage that waits, and its approval.

    The evidence of the stage before gets approved; before the first stage, that of the run's opening.
    """
    for before, stage in zip((RUN, *(stage.id for stage in stages)), stages, strict=False):
        if stage.approval is not None:
            yield before, stage.id, stage.approval


def announce_tasks(cluster: str, approvals: Iterable[Any], stages: tuple[Stage, ...]) -> dict[str, Task]:
    """Return the task that announces each approval by webhook, by stage."""
    tasks = {}
    private = {entry.before for entry in approvals if entry.announce is not None and entry.announce.ca is not None}
    for before, stage, approval in _waiting(stages):
        if approval.announced == WEBHOOK:
            names, file = list(approval.approvers), contract.webhook_file(stage)
            arguments = {"cluster": cluster, "approvers": names, "webhook": file, "approved": before}
            arguments |= {"ca": contract.ca_file(stage)} if stage in private else {}
            tasks[stage] = stage_task(stage, contract.ANNOUNCE, Verb.ANNOUNCE, deadline=ANNOUNCE_SECONDS, arguments=arguments)
    return tasks
