"""Resumes runs of this machine: an interrupted one goes on; one that has ended gets a new run that reuses it, as on Argo."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run
from workflows.cli.runs import announcing, running
from workflows.engines import inputs, launch, locks
from workflows.engines.argo.objects import CLUSTER
from workflows.engines.folders import RunFolder, new_run_name
from workflows.engines.local.result import read_status
from workflows.rehearsal.rehearse import refuse_resuming


class Forgotten(ValueError):
    """What the ended run was told is not there any more, so that nothing can be made of it."""


def resume(folder: RunFolder) -> int:
    """Go on with an interrupted run by its journal, or start a new one after a run that has ended; the exit code.

    Raises RunDriven, CannotResume for a rehearsal, and what `_anew` raises.
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
    """Start a run with a copy of the ended one's inputs; its exit code. Raises Forgotten, and launch's ClusterBusy."""
    template = _complete(before)
    read = Store(before.home.store).read
    began = read(run.header_key(before.name)) is not None
    folder = before.home.run(new_run_name(template["metadata"]["labels"][CLUSTER]))
    _copy(before.inputs, folder.inputs)
    said, note = running.continues(before.name, proved=began), run.unreached(before.name, read) if began else ""
    with inputs.kept_if_begun(folder), announcing.announced(folder) as tell, running.shown_anew(folder, said, note) as view:
        result = launch.start(folder, {}, tell(view.observe), before.name if began else "none")
    return running.conclude(folder, result)


def _copy(told: Path, place: Path) -> None:
    """Secrets lie in a folder that is closed before they do."""
    (place / "secrets").mkdir(parents=True, mode=0o700)
    shutil.copytree(told, place, dirs_exist_ok=True)


def _complete(before: RunFolder) -> dict[str, Any]:
    """The template of the run. Raises Forgotten where a file that its tasks read is not there."""
    manifest = before.inputs / inputs.MANIFEST
    _require(before, manifest)
    template: dict[str, Any] = msgspec.json.decode(manifest.read_bytes())["template"]
    tasks = before.inputs / "tasks" / run.PLAN_FILE
    for path in (tasks, before.inputs / "fleet", *(before.inputs / "secrets" / name for name in _secrets(template))):
        _require(before, path)
    return template


def _secrets(template: dict[str, Any]) -> Iterator[str]:
    """Names of the secret files that pods of the template are given."""
    for volume in template["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            yield from (item["path"] for item in source.get("secret", {}).get("items", ()))


def _require(before: RunFolder, path: Path) -> None:
    if not path.exists():
        again = f"start it again with `bringup run SPEC --reuse {before.name}`"
        raise Forgotten(f"run {before.name} has ended and its {path.relative_to(before.inputs)} is gone: {again}")
