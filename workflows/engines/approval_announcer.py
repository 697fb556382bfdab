"""Announce open approvals by a command on the machine that follows a run; each approval is announced at most once.

Announcements never delay the run. The run itself calls webhooks (verb `announce`), whether or not anybody follows it.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from steps import timeouts
from steps.clients import process
from steps.contract.runs import approval
from steps.errors import StepError
from workflows.engines.local.result import News, NodeNews, RunNodeStatus

if TYPE_CHECKING:
    from workflows.spec import ClusterSpec

Say = Callable[[str], None]
EvidenceLookup = Callable[[str], tuple[str, str]]
"""Type of a function from a suspend node's name to the evidence's digest ("" if unreadable) and the command that answers it."""
ChangeSummary = Callable[[], str]
"""Type of a function that returns what the approved stages would change, or "" if unknown."""
Claim = Callable[[str], bool]
"""Type of a function from a node's full name to True for exactly one follower of the run, which then announces the approval."""


class AnnounceCommand(Struct, frozen=True, kw_only=True):
    """The command that announces one approval. It runs without a shell and reads the announcement as JSON from standard input."""

    cluster: str
    approvers: tuple[str, ...]
    command: tuple[str, ...]


def announce_commands(spec: "ClusterSpec") -> dict[str, AnnounceCommand]:
    """Return stage → the command that announces the approval before it, for the approvals of a spec that have a command."""
    return {
        str(approval_spec.before): AnnounceCommand(
            cluster=spec.name,
            approvers=tuple(approver.name for approver in approval_spec.approvers),
            command=approval_spec.announce.command,
        )
        for approval_spec in spec.approvals
        if approval_spec.announce is not None and approval_spec.announce.command
    }


class Announcer:
    """Observer of a run's news that announces approvals, each in a thread of its own; `say` gets failures as warnings."""

    def __init__(
        self,
        run: str,
        commands: Mapping[str, AnnounceCommand],
        claim: Claim,
        how: EvidenceLookup,
        say: Say,
        about: ChangeSummary = lambda: "",
    ) -> None:
        self._run, self._commands, self._claim, self._how, self._say, self._about = run, commands, claim, how, say, about
        self._threads: list[threading.Thread] = []

    def observe(self, news: News) -> None:
        """Start a thread that announces the approval, if this news is that one has opened or was open when the observer began."""
        if not isinstance(news, NodeNews) or not news.waits or not news.node.name.startswith(approval.NODE_PREFIX):
            return
        stage = news.node.name.removeprefix(approval.NODE_PREFIX).replace("-", "_")
        if stage in self._commands:
            self._threads.append(threading.Thread(target=self._announce, args=(stage, news.node), daemon=True))
            self._threads[-1].start()

    def beside(self, observer: Callable[[News], None]) -> Callable[[News], None]:
        """Return an observer that passes news first to `observer` and then to this announcer."""

        def observe(news: News) -> None:
            observer(news)
            self.observe(news)

        return observe

    def close(self) -> None:
        """Wait until announcements under way have ended, for each at most its time-out."""
        for thread in self._threads:
            thread.join(timeouts.ANNOUNCE)

    def _announce(self, stage: str, node: RunNodeStatus) -> None:
        try:
            problem = run_announce_command(self._commands[stage].command, self._body(stage, node)) if self._claim(node.path) else ""
        except StepError as error:
            problem = str(error)
        if problem:
            self._say(f"warning: the approval before {stage} could not be announced: {problem}")

    def _body(self, stage: str, node: RunNodeStatus) -> bytes:
        announcer_command, (evidence, answer) = self._commands[stage], self._how(node.name)
        fields = {"run": self._run, "cluster": announcer_command.cluster, "stage": stage, "evidence": evidence, "how": answer}
        return approval.body(**fields, since=node.started, approvers=announcer_command.approvers, changes=self._about())


def run_announce_command(command: tuple[str, ...], body: bytes) -> str:
    """Run the command with `body` on standard input, and return why it failed, or "" if it succeeded."""
    done = process.run(command, data=body, seconds=timeouts.ANNOUNCE)
    return "" if done.code == 0 else f"{command[0]} ended with {done.code}: {done.err.strip()[-200:]}"


def local_claim(folder: Path) -> Claim:
    """Return a `Claim` for runs that only this machine knows: the first to create a file in this folder wins."""

    def claim(node: str) -> bool:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / node.replace("/", "_")).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    return claim
