"""Announcement of waiting approvals of local runs by commands, which lie with the run, so that `resume` announces too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from workflows.cli import output
from workflows.engines import approval_announcer, open_approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import NodeNews, Observer, RunNodeStatus
from workflows.spec import ClusterSpec

FILE = "telling.json"
CLAIMS = "announced"


def keep(folder: RunFolder, spec: ClusterSpec) -> None:
    """Write the announcing commands beside the inputs of a run that is about to start."""
    folder.inputs.mkdir(parents=True, exist_ok=True)
    (folder.inputs / FILE).write_bytes(msgspec.json.encode(approval_announcer.announce_commands(spec)))


@contextmanager
def announced(folder: RunFolder, waiting: list[RunNodeStatus] | None = None) -> Iterator[Callable[[Observer], Observer]]:
    """Put an announcer beside an observer. `waiting` are approvals that are open already, of which the engine sends no news."""
    file = folder.inputs / FILE
    commands = msgspec.json.decode(file.read_bytes(), type=dict[str, approval_announcer.AnnounceCommand]) if file.exists() else {}
    claim = approval_announcer.local_claim(folder.engine / CLAIMS)
    answer, about = partial(open_approvals.answer_command, folder), partial(open_approvals.changes, folder)
    announcer = approval_announcer.Announcer(folder.name, commands, claim, answer, lambda text: output.lines([text]), about)
    try:
        for node in waiting or ():
            announcer.observe(NodeNews(node, ""))
        yield announcer.beside
    finally:
        announcer.close()
