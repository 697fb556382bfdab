"""The file `argo.json`, in which this machine keeps what it knows of a run on Argo, above all which home cluster runs it.

With this file `status`, `watch` and the other commands need no options that name the home cluster.
"""

import os

import msgspec
from msgspec import Struct

from steps.contract.run_records import PLAN_FILE
from steps.contract.runs.lost_attempts import LostAttempt
from workflows.engines.approval_announcer import AnnounceCommand
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.folders import RunFolder

FILE = "argo.json"


class RunMemory(Struct, frozen=True, kw_only=True):
    """The content of `argo.json` of one run.

    `version` is the Argo version that a person gave with --argo-version, else empty. `telling` maps a stage to the command that
    announces its approval from this machine. `pulled` is when the copy of the whole store began (seconds since the epoch, 0 for
    never); `ended` is true if the run had already ended then, so that the copy is complete.
    """

    where: HomeAddress
    version: str = ""
    telling: dict[str, AnnounceCommand] = {}
    pulled: float = 0.0
    ended: bool = False
    lost: tuple[LostAttempt, ...] = ()
    """Attempts that were lost, as the Workflow had them when the store was copied last."""


def read(folder: RunFolder) -> RunMemory | None:
    """Return what `argo.json` of a run says; None if the run is not on Argo."""
    try:
        return msgspec.json.decode((folder.engine / FILE).read_bytes(), type=RunMemory)
    except FileNotFoundError:
        return None


def write(folder: RunFolder, memory: RunMemory) -> None:
    """Write `argo.json` of a run, atomically."""
    folder.engine.mkdir(parents=True, exist_ok=True)
    fresh = folder.engine / f".{FILE}.{os.getpid()}.new"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(memory)))
    fresh.replace(folder.engine / FILE)


def record_pull(folder: RunFolder, when: float, lost: tuple[LostAttempt, ...] = (), *, ended: bool) -> None:
    """Record in `argo.json` that the whole store was copied here; the copy began at `when` (seconds since the epoch).

    An empty `lost` keeps what was recorded before: the Workflow may be deleted by now.
    """
    memory = read(folder)
    if memory is not None:
        write(folder, msgspec.structs.replace(memory, pulled=when, ended=ended, lost=lost or memory.lost))


def knows_tasks(folder: RunFolder) -> bool:
    """Return True if this machine has a copy of all task files of the run."""
    return (folder.inputs / "tasks" / PLAN_FILE).exists()
