"""Arguments of the tasks of an acceptance, and the place where their jobs run."""

import itertools
import shutil
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from steps.clients import slurm_tools
from steps.clients.slurm_tools import JobPlace
from steps.errors import BadTask
from steps.runtime.context import Context

Scripts = Literal["marks", "waived", "unstated"]
FOLDER: Final = ".bringup-accept"
"""Folder in the user's home on the shared file system, with a folder for each run that goes with the run's last task."""
OWNER: Final = ".bringup-owner"
"""File in a run's folder with the comment of its jobs: the run and its process. Without it a folder is nobody's to remove."""
MOST_FOLDERS: Final = 10_000


class ScopeArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of verb build for stage slurm_acceptance.

    `gate` is the task's gate. `partition` and `account` may be empty. `shared` is a folder that all nodes mount, empty for the
    user's home. `marks` is the folder where prolog and epilog leave `prolog.JOBID` and `epilog.JOBID`. `gpus` is the number of GPUs
    on a node, -1 if it was not stated. `program` is the site's MPI program with its arguments, `mpi` the value of `srun --mpi`.
    `mebibytes` is the size of a message, `seconds` how long one is measured.
    """

    gate: str
    partition: str = ""
    account: str = ""
    shared: str = ""
    marks: str = ""
    gpus: int = -1
    allow_drain: bool = False
    program: tuple[str, ...] = ()
    mpi: str = ""
    floor: float = 0.0
    mebibytes: int = 1
    seconds: int = 1
    most_rounds: int = 40


def folder(context: Context, scope: ScopeArguments) -> Path:
    """Return this run's folder on the shared file system, made if it is missing. Raises BadTask if it cannot be made."""
    path = _parent(scope) / context.environment.run
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / OWNER).write_text(slurm_tools.comment(context.environment.run))
    except OSError as error:
        raise BadTask(f"cannot make {path}: {error.strerror}", hint="name a folder that all nodes mount with --shared") from error
    return path


def remove_abandoned(context: Context, scope: ScopeArguments) -> None:
    """Remove folders of runs whose process on this node is gone; of another node's nobody here can tell."""
    try:
        folders = list(itertools.islice(_parent(scope).iterdir(), MOST_FOLDERS))
    except OSError:
        return
    for path in folders:
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)
            context.did(f"removed {path}, which an interrupted acceptance had left")


def _is_abandoned(path: Path) -> bool:
    if path.is_symlink():
        return False
    try:
        with (path / OWNER).open(errors="replace") as file:
            owner = slurm_tools.owner(file.read(_LONGEST_OWNER))
    except OSError:
        return False
    return owner is not None and owner.run == path.name and not owner.alive


_LONGEST_OWNER: Final = 1000


def _parent(scope: ScopeArguments) -> Path:
    return Path(scope.shared) if scope.shared else Path.home() / FOLDER


def place(context: Context, scope: ScopeArguments) -> JobPlace:
    """Return where the jobs of this run go."""
    return JobPlace(
        run=context.environment.run,
        folder=str(folder(context, scope)),
        partition=scope.partition,
        account=scope.account,
    )
