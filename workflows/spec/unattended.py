"""What a spec asks of people in runs that nobody starts: an approval of which nobody is told then is a warning."""

from collections.abc import Iterator

from workflows.spec.cluster import ClusterSpec
from workflows.spec.errors import Issue
from workflows.spec.governance import Approval
from workflows.spec.image import ImageSpec

RULE = "announced"
SOURCE = "hera_argo §2.6"


def issues(spec: ClusterSpec) -> Iterator[Issue]:
    """A warning for each approval of which only who follows a run would tell, where a schedule or an event starts runs."""
    starts = [*(["the schedule"] if spec.schedule else []), *(["an event"] if spec.events else [])]
    for index, one in enumerate(spec.approvals if starts else ()):
        yield from _issue(f"approvals[{index}].announce", one, " or ".join(starts))


def of_image(spec: ImageSpec) -> Iterator[Issue]:
    """The same of the one approval that the build of an image may have."""
    for one in spec.approvals if spec.schedule else ():
        yield from _issue("approval.announce", one, "the schedule")


def _issue(path: str, one: Approval, starts: str) -> Iterator[Issue]:
    if why := _untold(one):
        problem = f"a run that {starts} starts waits before {one.before} and nobody is told: {why}"
        fix = "write announce: {webhook: {secret: {name: NAME, key: KEY}}}, which the run itself tells"
        yield Issue(RULE, "warning", path, problem, fix, SOURCE)


def _untold(one: Approval) -> str:
    if one.announce is None:
        return "the approval is not announced"
    if one.announce.webhook is None:
        return "its command is started by who follows the run, and nobody does then"
    return ""
