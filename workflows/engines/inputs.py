"""Lays out what a run on this machine is told: tasks, fleet and secrets as files, the manifest beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from steps.clients import certificates
from steps.contract.task import Verb
from steps.errors import BadTask
from workflows import places
from workflows.engines.folders import RunFolder
from workflows.engines.locks import ClusterBusy
from workflows.plan import files, fleet
from workflows.plan.model import Plan
from workflows.stages.access import KNOWN_HOSTS, KUBECONFIG, SecretFile

if TYPE_CHECKING:
    from workflows.render.bundle import Bundle  # with Hera, whose import takes longer than what `status` and `watch` do

MANIFEST = "manifest.json"


class SecretMissing(ValueError):
    """Secrets that the spec refers to are not there; the message says where they were looked for."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class NoTarget(ValueError):
    """The plan works on a target cluster that it does not build, and nobody says how to reach it."""

    hint = "add target: {kubeconfig: {file: PATH}} to the spec, or run from stage rke2 on"


def write(
    folder: RunFolder, plan: Plan, bundle: Bundle, spec_folder: Path, environ: Mapping[str, str], *, simulated: bool = False
) -> None:
    """Write the inputs of a run. In a rehearsal (`simulated`) secrets are not asked for: simulated hosts need none.

    Raises NoTarget and SecretMissing before anything is written.
    """
    if not simulated:
        require_target(plan)
    contents = {} if simulated else gathered(plan.secrets, spec_folder, environ)
    for name, data in files.tasks_folder(plan).items():
        _file(folder.inputs / "tasks" / name, data)
    for name, data in fleet.files(plan.digest, plan.hosts).items():
        _file(folder.inputs / "fleet" / name, data)
    (folder.inputs / "secrets").mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, data in contents.items():
        _file(folder.inputs / "secrets" / name, data, mode=0o600)
    _file(folder.inputs / MANIFEST, msgspec.json.encode({"template": bundle.template, "workflow": bundle.workflow}))
    folder.home.store.mkdir(parents=True, exist_ok=True)


@contextmanager
def kept_if_begun(folder: RunFolder) -> Iterator[None]:
    """Take what a run was told away again where another run holds its cluster: it never began, and no command would find what lies
    there, a private key among it."""
    try:
        yield
    except ClusterBusy:
        shutil.rmtree(folder.inputs, ignore_errors=True)
        raise


def require_target(plan: Plan) -> None:
    """Raise NoTarget for a plan that needs a kubeconfig which neither one of its plays makes nor the spec names."""
    tasks = [step.task for stage in plan.stages for step in stage.steps]
    made = any(task.arguments.get("kubeconfig_from") for task in tasks)
    named = any(file.name == KUBECONFIG for file in plan.secrets)
    needing = next((task.stage for task in tasks if task.verb in (Verb.APPLY, Verb.WAIT, Verb.JOB)), "")
    if needing and not made and not named:
        raise NoTarget(f"stage {needing} works on the target cluster, and neither this plan nor the spec has a kubeconfig of it")


def gathered(files: Sequence[SecretFile], spec_folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """The content of every secret by name. Raises SecretMissing naming all that are missing."""
    found, missing = {}, {}
    for file in files:
        if file.optional and file.path and not (spec_folder / places.expanded(file.path)).exists():
            continue
        try:
            found[file.name] = usable(file, secret(file, spec_folder, environ))
        except SecretMissing as error:
            missing[file] = str(error)
    if missing:
        beside = any(file.path and not places.expanded(file.path).is_absolute() for file in missing)
        hint = f"relative paths are looked up beside the spec, in {spec_folder.absolute()}" if beside else ""
        head = f"{len(missing)} secrets are missing: " if len(missing) > 1 else ""
        raise SecretMissing(head + "; ".join(missing.values()), hint)
    return found


def usable(file: SecretFile, data: bytes) -> bytes:
    """A secret's content. Raises SecretMissing for a CA that nobody can read: in a run it would look like a server that is away."""
    if file.certificates:
        try:
            certificates.checked(data.decode(errors="replace"), file.name, file.certificates)
        except BadTask as error:
            raise SecretMissing(f"{error}; {error.hint}") from error
    return data


def secret(file: SecretFile, spec_folder: Path, environ: Mapping[str, str]) -> bytes:
    """The content of a secret that a file or a variable of this machine holds. Raises SecretMissing."""
    if file.variable:
        if file.variable not in environ:
            raise SecretMissing(f"secret {file.name}: the environment variable {file.variable} is not set")
        return environ[file.variable].encode()
    if file.path:
        path = spec_folder / places.expanded(file.path)
        try:
            return path.read_bytes()
        except OSError as error:
            made = "; `bringup host-keys` makes it" if file.name == KNOWN_HOSTS else ""
            raise SecretMissing(f"secret {file.name}: {path}: {error.strerror}{made}") from error
    raise SecretMissing(f"secret {file.name} is a key of the Kubernetes Secret {file.secret}, which only the argo engine can read")


def _file(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
    except OSError as error:  # a full disk shows at the write, and there without a name
        raise OSError(error.errno, error.strerror, str(path)) from error
