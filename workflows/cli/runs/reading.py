"""Where the commands that read a run's evidence find it: here; of a run on Argo it is brought here first, or is as old as said."""

import time
from dataclasses import dataclass

from steps.clients.store import Store
from steps.contract import run as contract
from steps.contract import seal
from steps.errors import StepError
from steps.report import verify
from steps.report.timeline import stamp
from workflows.cli import output
from workflows.cli.argo import acting as argo
from workflows.cli.argo.options import Place
from workflows.engines.argo import pull, remembered, stop
from workflows.engines.argo.home import NoHomeCluster, NoWorkflow
from workflows.engines.argo.objects import Unreadable, node_status
from workflows.engines.folders import Home, RunFolder
from workflows.engines.local.result import NodeStatus

_OUT_OF_REACH = (StepError, NoWorkflow, NoHomeCluster, Unreadable)


class NotPulled(ValueError):
    """A run's evidence is in the home cluster alone."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run} is on Argo, and its evidence is not on this machine")
        self.hint = f"bring it here first: bringup pull {run}"


@dataclass(frozen=True)
class Found:
    """A run whose evidence is on this machine. `goes_on`: it is on Argo, and as far as is known here it has not ended; `begun` are
    nodes of a run on Argo. `note` says how old all this is where it is not as it is now."""

    folder: RunFolder
    is_away: bool = False
    goes_on: bool = False
    begun: tuple[NodeStatus, ...] = ()
    note: str = ""

    def say(self) -> None:
        """Print the note where no script takes it for a part of the answer."""
        if self.note:
            output.note(self.note)


def find(run: str, place: Place, *, fresh: bool = False) -> Found:
    """A run of this machine, or one on Argo: as it is sealed here, else as home has it now, else as it was last read.

    What may be written after the seal (releases of nodes) wants it `fresh`: as home has it now even where it is sealed here.
    Raises what `acting.locate` raises, and whatever keeps home from being read where nothing of the run is here.
    """
    folder = _here(run, place)
    if folder is not None and (not _is_away(folder, place) or (sealed(folder) and not fresh)):
        return Found(folder, is_away=_is_away(folder, place))
    try:
        away = argo.locate(run, place)
        assert away is not None  # else it was found above
        return brought(away)[1]
    except _OUT_OF_REACH as problem:
        if folder is None or remembered.read(folder) is None or not _has_header(folder):
            raise
        return kept(folder, f"{problem}".rstrip("."))


def _here(run: str, place: Place) -> RunFolder | None:
    """The folder of the run, where that needs no question to home. Raises NoSuchRun."""
    home = Home.of_environment()
    if not place.is_named:
        return home.find(run)
    return home.run(run) if run not in ("", "last") else None


def _is_away(folder: RunFolder, place: Place) -> bool:
    return place.is_named or remembered.read(folder) is not None


def brought(away: argo.Away) -> tuple[int, Found]:
    """Bring what home has of the run now; how many files. Raises ErrandFailed, Damaged, NoWorkflow."""
    workflow = argo.reached(away)
    count = pull.pull(away.home, workflow, away.folder)
    if remembered.read(away.folder) is None:  # its Workflow is gone, else it was remembered when that was read
        remembered.write(away.folder, remembered.Memory(where=away.home.where, pulled=time.time(), ended=True))
    nodes = workflow.nodes()
    begun = tuple(node_status(node, nodes) for node in nodes.values() if node.phase not in ("", "Pending"))
    whole = stop.was_never_begun(workflow) or (away.folder.stored / seal.FILE).exists()
    unsealed = workflow.finished and workflow.status.phase != pull.GONE and not whole
    note = f"run {away.name} has ended, but nothing of it is sealed: bringup sweep {away.name}" if unsealed else ""
    return count, Found(away.folder, is_away=True, goes_on=not workflow.finished, begun=begun, note=note)


def kept(folder: RunFolder, why: str = "") -> Found:
    """A run as this machine has it, home not asked. Raises NotPulled."""
    memory = remembered.read(folder)
    whole = memory is not None and sealed(folder)
    if memory is None or (whole and not why):
        return Found(folder, is_away=memory is not None)
    if not _has_header(folder):
        raise NotPulled(folder.name)
    when = f"as of {stamp(memory.pulled)}" if memory.pulled else "as far as its evidence was read here"
    note = f"run {folder.name} {when}{f', since home cannot be read now ({why})' if why else ''}; newer: bringup pull {folder.name}"
    return Found(folder, is_away=True, goes_on=not memory.ended and not whole, note=note)


def _has_header(folder: RunFolder) -> bool:
    return Store(folder.home.store).read(contract.header_key(folder.name)) is not None


def sealed(folder: RunFolder) -> bool:
    """Whether all that was sealed of a run is here, unchanged."""
    return (folder.stored / seal.FILE).exists() and not verify.problems(folder.stored)
