"""Answers the approvals of a rehearsal as soon as they wait, in its own name or in somebody's, and records it as such."""

from collections.abc import Callable

from steps.contract import approval
from workflows import places
from workflows.engines import approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local import inbox
from workflows.engines.local.result import News, NodeNews
from workflows.plan.model import Plan


class NoKey(ValueError):
    """There is no such key file."""


def check(plan: Plan, name: str, key: str = "") -> None:
    """Whether this name and key can answer the plan's approvals, before anything runs. Raises NotAllowed, NoKey."""
    approvals.check_name(name, ())
    for stage in plan.stages:
        if stage.approval:
            approvals.check_name(name, stage.approval.approvers)
    if key and not places.expanded(key).is_file():
        raise NoKey(f"no key file {key} to sign approvals with")


def opener(folder: RunFolder, name: str = approval.REHEARSAL, key: str = "") -> Callable[[News], None]:
    """An observer that passes each approval when it opens. `name` must be allowed to; `key` signs where the spec lists keys."""

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.waits and news.node.name.startswith(approvals.PREFIX):
            one = approvals.read(folder, news.node.name)
            given = approvals.parameters(one, approval.PASS, name)
            if key:
                approvals.sign(folder, one, name, key)
            inbox.send(folder.engine, "approve", node=news.node.name, parameters=given, message=f"approved by {name}")

    return observe
