"""Lays out what a run on this machine is told: tasks, fleet and secrets as files, the manifest beside them."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from workflows.engines.folders import RunFolder
from workflows.plan import files, fleet
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.stages.access import SecretFile

MANIFEST = "manifest.json"


class SecretMissing(ValueError):
    """A secret that the spec refers to is not there; the message says where it was looked for."""


def write(
    folder: RunFolder, plan: Plan, bundle: Bundle, spec_folder: Path, environ: Mapping[str, str], *, simulated: bool = False
) -> None:
    """Write the inputs of a run. In a rehearsal (`simulated`) secrets are not asked for: simulated hosts need none.

    Raises SecretMissing before anything is written.
    """
    contents = {} if simulated else {file.name: _secret(file, spec_folder, environ) for file in plan.secrets}
    for name, data in files.tasks_folder(plan).items():
        _file(folder.inputs / "tasks" / name, data)
    for name, data in fleet.files(plan.digest, plan.hosts).items():
        _file(folder.inputs / "fleet" / name, data)
    (folder.inputs / "secrets").mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, data in contents.items():
        _file(folder.inputs / "secrets" / name, data, mode=0o600)
    _file(folder.inputs / MANIFEST, msgspec.json.encode({"template": bundle.template, "workflow": bundle.workflow}))
    folder.home.store.mkdir(parents=True, exist_ok=True)


def _secret(file: SecretFile, spec_folder: Path, environ: Mapping[str, str]) -> bytes:
    if file.variable:
        if file.variable not in environ:
            raise SecretMissing(f"secret {file.name}: the environment variable {file.variable} is not set")
        return environ[file.variable].encode()
    if file.path:
        path = spec_folder / Path(file.path).expanduser()
        try:
            return path.read_bytes()
        except OSError as error:
            raise SecretMissing(f"secret {file.name}: {path}: {error.strerror}") from error
    raise SecretMissing(f"secret {file.name} is a key of the Kubernetes Secret {file.secret}, which only the argo engine can read")


def _file(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
    except OSError as error:  # a full disk shows at the write, and there without a name
        raise OSError(error.errno, error.strerror, str(path)) from error
