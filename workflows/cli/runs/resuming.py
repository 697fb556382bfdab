"""Resumption of runs of this machine: an interrupted run goes on; after one that has ended, a new run reuses its evidence."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run
from workflows.cli.runs import announcing, running
from workflows.engines import launch, locks, run_inputs
from workflows.engines.argo.workflow_objects import CLUSTER
from workflows.engines.folders import RunFolder, new_run_name
from workflows.engines.local.result import read_status
from workflows.rehearsal.rehearsal_run import refuse_resuming


class Forgotten(ValueError):
    """Error for an ended run whose inputs are no longer complete, so that no new run can be made of them."""


def resume(folder: RunFolder) -> int:
    """Continue an interrupted run by its journal, or start a new one after a run that has ended; return the exit code.

    Raises RunDriven, CannotResume for a rehearsal, and the errors of `_anew`.
    """
    locks.require_idle(folder)
    refuse_resuming(folder)
    engine = read_status(folder.engine)
    if engine.finished:
        return _anew(folder)
    with announcing.announced(folder, engine.gates) as tell, running.shown_again(folder) as view:
        result = launch.resume(folder, {}, tell(view.observe))
    return running.conclude(folder, result)


def _anew(before: RunFolder) -> int:
    """Start a run with a copy of the ended one's inputs; return its exit code. Raises Forgotten and ClusterBusy."""
    template = _complete(before)
    read = Store(before.home.store).read
    began = read(run.header_key(before.name)) is not None
    folder = before.home.run(new_run_name(template["metadata"]["labels"][CLUSTER]))
    _copy(before.inputs, folder.inputs)
    sentence, note = running.continues(before.name, proved=began), run.unreached(before.name, read) if began else ""
    with (
        run_inputs.inputs_removed_if_busy(folder),
        announcing.announced(folder) as tell,
        running.shown_anew(folder, sentence, note) as view,
    ):
        result = launch.start(folder, {}, tell(view.observe), before.name if began else "none")
    return running.conclude(folder, result)


def _copy(told: Path, place: Path) -> None:
    """Copy the inputs; the folder of secrets gets mode 0700 before any secret is in it."""
    (place / "secrets").mkdir(parents=True, mode=0o700)
    shutil.copytree(told, place, dirs_exist_ok=True)


def _complete(before: RunFolder) -> dict[str, Any]:
    """Return the run's template. Raises Forgotten if a file that its tasks read is missing."""
    manifest = before.inputs / run_inputs.MANIFEST
    _require(before, manifest)
    template: dict[str, Any] = msgspec.json.decode(manifest.read_bytes())["template"]
    tasks = before.inputs / "tasks" / run.PLAN_FILE
    for path in (tasks, before.inputs / "fleet", *(before.inputs / "secrets" / name for name in _secrets(template))):
        _require(before, path)
    return template


def _secrets(template: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the secret files that the template's pods mount."""
    for volume in template["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            yield from (item["path"] for item in source.get("secret", {}).get("items", ()))


def _require(before: RunFolder, path: Path) -> None:
    if not path.exists():
        again = f"start it again with `bringup run SPEC --reuse {before.name}`"
        raise Forgotten(f"run {before.name} has ended and its {path.relative_to(before.inputs)} is gone: {again}")
