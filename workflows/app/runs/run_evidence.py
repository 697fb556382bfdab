"""Evidence of a run for commands that read it: from this machine, or fetched from Argo first."""

import time
from pathlib import Path

from steps.clients import signature
from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.runs import run_seal
from steps.contract.runs.lost_attempts import LostAttempt
from steps.errors import BadTask, StepError
from steps.report import verify
from steps.report.timeline import stamp
from workflows.app.run_options import RunLocation
from workflows.app.runs import argo_runs, report_assembly, seal_traces
from workflows.app.runs.report_assembly import RunEvidence
from workflows.engines import seal_keys
from workflows.engines.argo import cancellation, pull, run_memory
from workflows.engines.argo.home import NoHomeCluster, NoWorkflow
from workflows.engines.argo.workflow_objects import UnreadableStatus, node_status
from workflows.engines.attempt_history import lost_attempts
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.errors import JournalForeignError, RunDirectoryError
from workflows.engines.local.result import read_status

_OUT_OF_REACH = (StepError, NoWorkflow, NoHomeCluster, UnreadableStatus)


class NotPulled(ValueError):
    """Error for a run on Argo of which this machine has no evidence yet."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run} is on Argo, and its evidence is not on this machine")
        self.hint = f"bring it here first: bringup pull {run}"


class NotSealed(ValueError):
    """Error for a run of this machine that has not ended, so nothing of it is sealed."""

    def __init__(self, run: str, *, goes_on: bool) -> None:
        super().__init__(f"run {run} {'goes on' if goes_on else 'was interrupted'}, so nothing of it is sealed yet")
        self.hint = f"see where it stands: bringup status {run}"


def find(run: str, place: RunLocation, *, fresh: bool = False) -> RunEvidence:
    """Return a run's evidence.

    For a run on Argo it is what is sealed here, else what can be fetched now, else what was fetched last. With `fresh`, a sealed
    run is fetched again, for records that may follow the seal (releases of nodes). Raises the errors of `argo_runs.locate`, and
    those of reading the home cluster if nothing of the run is here.
    """
    home = StateFolder.of_environment()
    # home alone knows which of its runs is the newest
    folder = home.find(run) if not place.is_named else home.run(run) if run not in ("", "last") else None
    is_away = place.is_named or (folder is not None and run_memory.read(folder) is not None)
    if folder is not None and (not is_away or (sealed(folder) and not fresh)):
        return RunEvidence(folder, is_away=is_away)
    try:
        away = argo_runs.locate(run, place)
        assert away is not None  # a run of this machine was returned above
        return brought(away)[1]
    except _OUT_OF_REACH as problem:
        if folder is None or run_memory.read(folder) is None or not _has_header(folder):
            raise
        return kept(folder, f"{problem}".rstrip("."))


def brought(away: argo_runs.ArgoRun) -> tuple[int, RunEvidence]:
    """Fetch what the home cluster has of a run; return the number of files, and the evidence.

    Raises HelperPodFailed, Damaged, NoWorkflow.
    """
    workflow = argo_runs.reached(away)
    count = pull.pull(away.home, workflow, away.folder)
    # only a run whose Workflow is gone has no record here yet: reading a Workflow writes one
    if run_memory.read(away.folder) is None:
        run_memory.write(away.folder, run_memory.RunMemory(where=away.home.where, pulled=time.time(), ended=True))
    nodes = workflow.nodes()
    begun = tuple(node_status(node, nodes) for node in nodes.values() if node.phase not in ("", "Pending"))
    whole = cancellation.was_never_begun(workflow) or (away.folder.stored / run_seal.FILE).exists()
    unsealed = workflow.finished and workflow.status.phase != pull.GONE and not whole
    note = f"run {away.name} has ended, but nothing of it is sealed: bringup sweep {away.name}" if unsealed else ""
    return count, RunEvidence(away.folder, is_away=True, goes_on=not workflow.finished, begun=begun, note=note)


def lost(folder: RunFolder) -> tuple[LostAttempt, ...]:
    """Return the attempts of a run that were lost, by the engine's journal here, or by the Workflow when it was read last."""
    memory = run_memory.read(folder)
    if memory is not None:
        return memory.lost
    try:
        return lost_attempts(folder, read_status(folder.engine).nodes)
    except (JournalForeignError, RunDirectoryError):
        return ()


def kept(folder: RunFolder, why: str = "") -> RunEvidence:
    """Return the evidence that this machine has of a run, without asking the home cluster. Raises NotPulled.

    `why` says why the home cluster cannot be asked; it becomes part of the note.
    """
    memory = run_memory.read(folder)
    whole = memory is not None and sealed(folder)
    if memory is None or (whole and not why):
        return RunEvidence(folder, is_away=memory is not None)
    if not _has_header(folder):
        raise NotPulled(folder.name)
    when = f"as of {stamp(memory.pulled)}" if memory.pulled else "as far as its evidence was read here"
    note = f"run {folder.name} {when}{f', since home cannot be read now ({why})' if why else ''}; newer: bringup pull {folder.name}"
    return RunEvidence(folder, is_away=True, goes_on=not memory.ended and not whole, note=note)


def _has_header(folder: RunFolder) -> bool:
    return Store(folder.home.store).read(run_records.header_key(folder.name)) is not None


def sealed(folder: RunFolder) -> bool:
    """Return True if this machine has the run's seal, and all that was sealed is unchanged."""
    return (folder.stored / run_seal.FILE).exists() and not verify.problems(folder.stored)


def hand_out(run: str, place: RunLocation, below: Path) -> tuple[int, Path]:
    """Copy a run's sealed files, no secrets, to a folder of its name below `below`; return their number, and that folder."""
    folder = find(run, place).folder
    # of a run of this machine, the engine's files say whether seal or signature were taken away
    if differences := report_assembly.seal_differences(folder):
        raise BadTask(
            f"{folder.stored} is not what was sealed, so nothing is handed out: {verify.listed(differences)}",
            hint=f"bringup verify {folder.name} names every difference",
        )
    return verify.hand_out(folder.stored, below / folder.name), below / folder.name


def own_key() -> str:
    """Return type and fingerprint of the key with which this machine signs seals; empty if it has none."""
    public = seal_keys.public_key(StateFolder.of_environment())
    return signature.fingerprint(public) if public else ""


def check_seal(folder: Path, signer: tuple[str, str] | None) -> tuple[tuple[str, ...], verify.Cover | None]:
    """Return the problems of a run's folder (see `verify.problems`), and what its seal covers if there are none.

    Of a run of this machine, a seal or signature that was taken away is a problem too.
    """
    home = StateFolder.of_environment()
    own = home.run(folder.name)
    if own.stored == folder and folder.name in home.runs() and (gone := _taken_away(own)):
        return gone, None
    problems = verify.problems(folder, signer)
    return problems, None if problems else verify.cover(folder)


def _taken_away(folder: RunFolder) -> tuple[str, ...]:
    """Return what is missing of the seal that the local engine saw written (see `seal_traces`). Raises NotSealed before it."""
    try:
        engine = read_status(folder.engine)
    except (JournalForeignError, RunDirectoryError):
        return ()
    if not (engine.finished or (folder.stored / run_seal.FILE).exists()):
        raise NotSealed(folder.name, goes_on=engine.alive)
    return () if engine.alive or not engine.finished else seal_traces.missing(folder, engine)
