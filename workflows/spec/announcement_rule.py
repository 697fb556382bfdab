"""The rule `announced`: warn if no approver is notified of an approval in a run that a schedule or an event starts."""

from collections.abc import Iterable, Iterator

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.errors import Issue
from workflows.spec.sections.governance import ApprovalPoint

RULE = "announced"
SOURCE = "https://argo-workflows.readthedocs.io/en/latest/cron-workflows/"


def cluster_issues(spec: ClusterSpec) -> Iterator[Issue]:
    """Yield a warning for each approval without a webhook if a schedule or an event starts runs: no approver is told of it then."""
    starts = [*(["the schedule"] if spec.schedule else []), *(["an event"] if spec.events else [])]
    for index, approval in enumerate(spec.approvals if starts else ()):
        yield from _issue(f"approvals[{index}].announce", approval, " or ".join(starts))


def scheduled_issues(approvals: Iterable[ApprovalPoint]) -> Iterator[Issue]:
    """Yield a warning for each approval of a scheduled image build that has no webhook, so that no approver is notified of it."""
    for approval in approvals:
        yield from _issue("approval.announce", approval, "the schedule")


def _issue(path: str, approval: ApprovalPoint, starts: str) -> Iterator[Issue]:
    if approval.announce is not None and approval.announce.webhook is not None:
        return
    why = "its command runs on the machine of the user who follows the run, and such a run has none"
    why = why if approval.announce else "the approval is not announced"
    problem = f"a run that {starts} starts waits before {approval.before}, and no approver hears of it: {why}"
    fix = "write announce: {webhook: {secret: {name: NAME, key: KEY}}}, which the run itself calls"
    yield Issue(RULE, "warning", path, problem, fix, SOURCE)
