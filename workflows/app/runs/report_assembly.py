"""Build the report of a run as data from the run's files on this machine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from steps.clients import regular_files
from steps.clients.store import Store
from steps.contract.runs import approval, run_seal
from steps.errors import BadTask, Refused
from steps.report import model, source, verify
from steps.report.assembly import build
from workflows.app.runs import seal_traces
from workflows.engines.folders import RunFolder
from workflows.engines.local.errors import JournalForeignError, RunDirectoryError
from workflows.engines.local.result import RunNodeStatus, read_status
from workflows.render import names


@dataclass(frozen=True)
class RunEvidence:
    """A run whose evidence is on this machine, as input of its report.

    `is_away` marks a run on Argo, `goes_on` one that has not ended as far as is known here; `begun` are its nodes that have begun.
    `note` says how old the evidence is, if it is not current.
    """

    folder: RunFolder
    is_away: bool = False
    goes_on: bool = False
    begun: tuple[RunNodeStatus, ...] = ()
    note: str = ""


def assemble(evidence: RunEvidence) -> model.Report:
    """Return a run's report, from the store and, if they are here, the engine's files; the seal of an ended run is checked first.

    Raises BadTask.
    """
    differences = () if evidence.goes_on else seal_differences(evidence.folder)
    try:
        return verify.distrusted(_assembled(evidence), differences)
    except BadTask as error:
        if not differences:
            raise
        reason = f"{evidence.folder.name}: the run's files are not what was sealed, so there is no report: {differences[0]}"
        raise Refused(reason, hint=f"bringup verify {evidence.folder.name} names every difference") from error


def seal_differences(folder: RunFolder) -> tuple[str, ...]:
    """Return how a run's files differ from its seal; nothing while an engine drives it, since a resumed run is sealed anew.

    A seal or signature that the engine saw written and that is gone is a difference too.
    """
    is_sealed = regular_files.kind_of(folder.stored / run_seal.FILE) is not None
    try:
        engine = read_status(folder.engine)
    except (JournalForeignError, RunDirectoryError):
        return verify.problems(folder.stored) if is_sealed else ()
    if engine.alive or not engine.finished:
        return ()
    problems = verify.problems(folder.stored) if is_sealed else ()
    return (*problems, *seal_traces.missing(folder, engine))


def _assembled(evidence: RunEvidence) -> model.Report:
    folder = evidence.folder
    stored = source.read(Store(folder.home.store), folder.name)
    if evidence.is_away:
        return build(stored, running=evidence.goes_on, begun=_begun(stored, evidence.begun))
    try:
        engine = read_status(folder.engine)
    except (JournalForeignError, RunDirectoryError):
        return build(stored)
    begun = [node for node in engine.nodes if node.type == "Suspend" or (folder.engine / node.log).exists()]
    return build(stored, running=engine.alive and not engine.finished, begun=_begun(stored, begun))


def _begun(stored: source.StoredRun, nodes: Iterable[RunNodeStatus]) -> Iterator[model.Begun]:
    """Yield a record for each task whose process or pod has begun, and for each approval that was waited for."""
    templates = {}
    for stage in stored.plan.get("stages", ()):
        templates[f"{approval.NODE_PREFIX}{names.dashed(stage['id'])}"] = stage["id"], model.APPROVAL
        templates |= {names.template(stage["id"], task["name"]): (stage["id"], task["name"]) for task in stage.get("tasks", ())}
    for node in nodes:
        if node.template in templates and node.type in ("Suspend", "Pod"):
            stage_id, task = templates[node.template]
            yield model.Begun(stage=stage_id, task=task, started=node.started, finished=node.finished or 0.0)
