"""Build the report of a run as data from the run's files on this machine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from steps.clients import regular_files
from steps.clients.store import Store
from steps.contract import approval, run_seal
from steps.report import model, source, verify
from steps.report.assembly import build
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
    differences = () if evidence.goes_on else _differences(evidence.folder)
    return verify.distrusted(_assembled(evidence), differences)


def _differences(folder: RunFolder) -> tuple[str, ...]:
    """Return how a run's files differ from its seal; nothing while an engine drives it, since a resumed run is sealed anew."""
    if regular_files.kind_of(folder.stored / run_seal.FILE) is None:
        return ()
    try:
        engine = read_status(folder.engine)
    except (JournalForeignError, RunDirectoryError):
        return verify.problems(folder.stored)
    return () if engine.alive or not engine.finished else verify.problems(folder.stored)


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
        templates |= {names.template(stage["id"], task["name"]): (stage["id"], task["name"]) for task in stage["tasks"]}
    for node in nodes:
        if node.template in templates and node.type in ("Suspend", "Pod"):
            stage_id, task = templates[node.template]
            yield model.Begun(stage=stage_id, task=task, started=node.started, finished=node.finished or 0.0)
