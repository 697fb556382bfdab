"""Announces waiting approvals of local runs by commands: what is told lies with the run, so `resume` tells it too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec

from workflows.cli import output
from workflows.engines import announce, approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import NodeNews, NodeStatus, Observer
from workflows.spec import ClusterSpec

FILE = "telling.json"
CLAIMS = "announced"


def keep(folder: RunFolder, spec: ClusterSpec) -> None:
    """Keep what is announced by a command beside the inputs of a run that is about to start."""
    folder.inputs.mkdir(parents=True, exist_ok=True)
    (folder.inputs / FILE).write_bytes(msgspec.json.encode(announce.tellings(spec)))


@contextmanager
def announced(folder: RunFolder, waiting: list[NodeStatus] | None = None) -> Iterator[Callable[[Observer], Observer]]:
    """Put an announcer beside an observer. `waiting` are the approvals that are open already: the engine has no news of those."""
    kept = folder.inputs / FILE
    told = msgspec.json.decode(kept.read_bytes(), type=dict[str, announce.Telling]) if kept.exists() else {}
    claim = announce.local_claim(folder.engine / CLAIMS)
    how, about = partial(approvals.how, folder), partial(approvals.changes, folder)
    announcer = announce.Announcer(folder.name, told, claim, how, lambda text: output.lines([text]), about)
    try:
        for node in waiting or ():
            announcer.observe(NodeNews(node, ""))
        yield announcer.beside
    finally:
        announcer.close()
