"""Tells approvers by a command that an approval waits: at most once for each approval, beside the run and never in its way.

Such a command is of the machine that follows. A webhook is told by the run itself (verb `announce`), followed or not.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.contract import announcement, approval
from steps.errors import StepError
from workflows.engines.local.result import News, NodeNews, NodeStatus

if TYPE_CHECKING:
    from workflows.spec import ClusterSpec

Say = Callable[[str], None]
How = Callable[[str], tuple[str, str]]
"""The digest of the evidence behind a suspend node (empty where it is not read), and the command that answers."""
About = Callable[[], str]
"""What is about to change; empty where nobody knows."""
Claim = Callable[[str], bool]
"""Whether the announcement of this node (full name) is ours to make: true exactly once, whoever follows the run."""


class Telling(Struct, frozen=True, kw_only=True):
    """How one approval is announced: a command without a shell, which gets the announcement as JSON on standard input."""

    cluster: str
    approvers: tuple[str, ...]
    command: tuple[str, ...]


def tellings(spec: "ClusterSpec") -> dict[str, Telling]:
    """What is announced by a command, by the stage that waits."""
    return {
        str(one.before): Telling(
            cluster=spec.name, approvers=tuple(approver.name for approver in one.approvers), command=one.announce.command
        )
        for one in spec.approvals
        if one.announce is not None and one.announce.command
    }


def _nothing() -> str:
    """Nobody knows what is about to change."""
    return ""


class Announcer:
    """An observer of a run's news. Each announcement has a thread of its own; what goes wrong is a warning through `say`."""

    def __init__(self, run: str, told: Mapping[str, Telling], claim: Claim, how: How, say: Say, about: About = _nothing) -> None:
        self._run, self._told, self._claim, self._how, self._say, self._about = run, told, claim, how, say, about
        self._threads: list[threading.Thread] = []

    def observe(self, news: News) -> None:
        """Announce an approval that has just opened, or is open when the run is first looked at."""
        if not isinstance(news, NodeNews) or not news.waits or not news.node.name.startswith(approval.NODE_PREFIX):
            return
        stage = news.node.name.removeprefix(approval.NODE_PREFIX).replace("-", "_")
        if stage in self._told:
            self._threads.append(threading.Thread(target=self._announce, args=(stage, news.node), daemon=True))
            self._threads[-1].start()

    def beside(self, observer: Callable[[News], None]) -> Callable[[News], None]:
        """An observer that tells this one and another."""

        def observe(news: News) -> None:
            observer(news)
            self.observe(news)

        return observe

    def close(self) -> None:
        """Give announcements that are under way their time."""
        for thread in self._threads:
            thread.join(timeouts.ANNOUNCE)

    def _announce(self, stage: str, node: NodeStatus) -> None:
        try:
            problem = tell(self._told[stage].command, self._body(stage, node)) if self._claim(node.path) else ""
        except StepError as error:
            problem = str(error)
        if problem:
            self._say(f"warning: the approval before {stage} could not be announced: {problem}")

    def _body(self, stage: str, node: NodeStatus) -> bytes:
        one, (evidence, how) = self._told[stage], self._how(node.name)
        told = {"run": self._run, "cluster": one.cluster, "stage": stage, "evidence": evidence, "how": how}
        return announcement.body(**told, since=node.started, approvers=one.approvers, changes=self._about())


def tell(command: tuple[str, ...], body: bytes) -> str:
    """Start it; why that did not work, empty when it did."""
    done = process.run(command, data=body, seconds=timeouts.ANNOUNCE)
    return "" if done.code == 0 else f"{command[0]} ended with {done.code}: {done.err.strip()[-200:]}"


def local_claim(folder: Path) -> Claim:
    """A claim by a file in this folder, for runs that one machine knows."""

    def claim(node: str) -> bool:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / node.replace("/", "_")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    return claim
