"""Answers the approvals of a rehearsal as soon as they wait, in its own name or in somebody's, and records it as such."""

from collections.abc import Callable

from steps.contract import approval
from workflows.engines import approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local import inbox
from workflows.engines.local.result import News, NodeNews


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
