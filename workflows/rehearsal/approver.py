"""Automatic approval of a rehearsal's approvals, recorded under the name of an approver."""

from collections.abc import Callable

from steps.contract.runs import approval
from workflows import user_paths
from workflows.engines import open_approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local import inbox
from workflows.engines.local.result import News, NodeNews
from workflows.plan.model import Plan


class SigningKeyMissing(ValueError):
    """Raised if the key file that should sign approvals does not exist."""


def check_approver(plan: Plan, name: str, key: str = "") -> None:
    """Raise NotAllowed if `name` may not answer one of the plan's approvals.

    Raises SigningKeyMissing if there is no file `key`, WrongKey if the spec lists another key for this name.
    """
    open_approvals.check_name(name, ())
    for stage in plan.stages:
        if stage.approval:
            open_approvals.check_name(name, stage.approval.approvers)
    if key and not user_paths.expand_home(key).is_file():
        raise SigningKeyMissing(f"there is no key file {key} to sign approvals with")
    listed = [stage.approval.approvers.get(name, ()) for stage in plan.stages if stage.approval] if key else []
    for public_keys in dict.fromkeys(tuple(keys) for keys in listed if keys):
        open_approvals.checked_signature(b"a key is tried", name, public_keys, key)


def approving_observer(folder: RunFolder, name: str = approval.REHEARSAL, key: str = "") -> Callable[[News], None]:
    """Return an observer of engine news that approves each approval of a run as soon as it opens.

    `name` must be an allowed approver. `key` is the file that signs approvals where the spec lists approvers' keys; empty:
    unsigned.
    """

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.waits and news.node.name.startswith(open_approvals.PREFIX):
            open_approval = open_approvals.read_approval(folder, news.node.name)
            parameters = open_approvals.parameters(open_approval, approval.PASS, name)
            if key:
                open_approvals.sign(folder, open_approval, name, key)
            inbox.send(folder.engine, "approve", node=news.node.name, parameters=parameters, message=f"approved by {name}")

    return observe
