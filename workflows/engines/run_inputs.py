"""Files that a local run reads: its tasks, hosts and secrets in folders, and the manifest beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from steps.contract.task import Verb
from workflows.engines import run_secrets
from workflows.engines.folders import RunFolder
from workflows.engines.locks import ClusterBusy
from workflows.plan import run_folders
from workflows.plan.model import Plan
from workflows.stages.host_access import KUBECONFIG

if TYPE_CHECKING:
    from workflows.render.bundle import Bundle  # with Hera, whose import takes longer than what `status` and `watch` do

MANIFEST = "manifest.json"


class NoTarget(ValueError):
    """Exception: the plan works on a target cluster that it does not build, and the spec names no kubeconfig for it."""

    hint = "add target: {kubeconfig: {file: PATH}} to the spec, or run from stage rke2 on"


def write(
    folder: RunFolder, plan: Plan, bundle: Bundle, spec_folder: Path, environ: Mapping[str, str], *, simulated: bool = False
) -> None:
    """Write the files that a run reads. A rehearsal (`simulated`) gets no secrets and needs no target cluster.

    Raises NoTarget and SecretMissing before anything is written.
    """
    if not simulated:
        require_target(plan)
    contents = {} if simulated else run_secrets.read_secrets(plan.secrets, spec_folder, environ)
    for name, data in run_folders.tasks_folder(plan).items():
        _file(folder.inputs / "tasks" / name, data)
    for name, data in run_folders.fleet_folder(plan.digest, plan.hosts).items():
        _file(folder.inputs / "fleet" / name, data)
    (folder.inputs / "secrets").mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, data in contents.items():
        _file(folder.inputs / "secrets" / name, data, mode=0o600)
    _file(folder.inputs / MANIFEST, msgspec.json.encode({"template": bundle.template, "workflow": bundle.workflow}))
    folder.home.store.mkdir(parents=True, exist_ok=True)


@contextmanager
def inputs_removed_if_busy(folder: RunFolder) -> Iterator[None]:
    """Delete the inputs of a run if its start, inside the `with` block, raises ClusterBusy.

    Such a run never began, so no command would ever find (and clean up) its inputs, which include private keys.
    """
    try:
        yield
    except ClusterBusy:
        shutil.rmtree(folder.inputs, ignore_errors=True)
        raise


def require_target(plan: Plan) -> None:
    """Raise NoTarget if the plan needs a kubeconfig, none of its plays creates one, and the spec names none."""
    tasks = [step.task for stage in plan.stages for step in stage.steps]
    creates_kubeconfig = any(task.arguments.get("kubeconfig_from") for task in tasks)
    named = any(file.name == KUBECONFIG for file in plan.secrets)
    needing = next((task.stage for task in tasks if task.verb in (Verb.APPLY, Verb.WAIT, Verb.JOB)), "")
    if needing and not creates_kubeconfig and not named:
        raise NoTarget(f"stage {needing} works on the target cluster, but neither this plan nor the spec provides its kubeconfig")


def _file(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # a secret must have its mode from the beginning
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
    except OSError as error:  # errors of write (a full disk) do not name the file
        raise OSError(error.errno, error.strerror, str(path)) from error
