"""Attach a spec's approvals to the stages that wait for them, and make the tasks that announce an approval and check its answer."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from steps.contract.runs.approval import ANNOUNCE, CONFIRM, ca_file, webhook_file
from steps.contract.task import Task, Verb
from workflows.stages.stage import COMMAND, WEBHOOK, Approval, Stage
from workflows.stages.stage import task as stage_task

RUN = "run"
"""Pseudo stage id of the tasks that belong to the run as a whole, such as `run.open`."""

ANNOUNCE_SECONDS = 60
"""Deadline in seconds of an announcement task, which makes one POST bounded by `timeouts.ANNOUNCE`; the engine retries the task."""


def attach_approvals(stages: tuple[Stage, ...], approvals: Iterable[Any]) -> tuple[Stage, ...]:
    """Return the stages, each with the spec's approval before it, if any. Approvals before stages outside the plan are dropped.

    A stage's own approval is dropped if the stage that says whether to ask is not in the plan: then nobody is shown what it is
    about, and the stage does only what needs no approval.
    """
    waiting: dict[str, Any] = {approval.before: approval for approval in approvals}
    planned = {stage.id for stage in stages}
    return tuple(
        dataclasses.replace(stage, approval=_approval(waiting[stage.id]))
        if stage.id in waiting
        else dataclasses.replace(stage, approval=None, asked_if=None)
        if stage.asked_if is not None and stage.asked_if.stage not in planned
        else stage
        for stage in stages
    )


def _approval(approval: Any) -> Approval:
    keys = {approver.name: (approver.key,) if approver.key else () for approver in approval.approvers}
    announcement = approval.announce
    channel = "" if announcement is None else WEBHOOK if announcement.webhook else COMMAND
    return Approval(approvers=keys, timeout_seconds=int(approval.timeout.total_seconds()), announced=channel)


def confirm_tasks(stages: tuple[Stage, ...]) -> dict[str, Task]:
    """Return stage id → the task that verifies the answer to the approval before that stage.

    The approver approves the evidence of the preceding stage.
    """
    tasks = {}
    for before, stage, approval in _waiting(stages):
        keys = {name: list(values) for name, values in approval.approvers.items()}
        arguments = {"approved": before, "approvers": keys, "timeout_seconds": approval.timeout_seconds}
        tasks[stage] = stage_task(stage, CONFIRM, Verb.CONFIRM, deadline=120, arguments=arguments)
    return tasks


def _waiting(stages: tuple[Stage, ...]) -> Iterator[tuple[str, str, Approval]]:
    """Yield for each stage with an approval: the stage whose evidence is approved, the waiting stage's id, and the approval.

    The approved evidence is that of the preceding stage; before the first stage, that of the task `open` (`RUN`).
    """
    for before, stage in zip((RUN, *(stage.id for stage in stages)), stages, strict=False):
        if stage.approval is not None:
            yield before, stage.id, stage.approval


def announce_tasks(cluster: str, approvals: Iterable[Any], stages: tuple[Stage, ...]) -> dict[str, Task]:
    """Return stage id → the task that announces the approval before that stage, for approvals with a webhook."""
    tasks = {}
    private = {entry.before for entry in approvals if entry.announce is not None and entry.announce.ca is not None}
    for before, stage, approval in _waiting(stages):
        if approval.announced == WEBHOOK:
            names, file = list(approval.approvers), webhook_file(stage)
            arguments = {"cluster": cluster, "approvers": names, "webhook": file, "approved": before}
            arguments |= {"ca": ca_file(stage)} if stage in private else {}
            tasks[stage] = stage_task(stage, ANNOUNCE, Verb.ANNOUNCE, deadline=ANNOUNCE_SECONDS, arguments=arguments)
    return tasks
