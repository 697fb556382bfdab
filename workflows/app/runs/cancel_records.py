"""The record of who cancelled a run, kept beside its evidence and shown in place of the engine's own message."""

import getpass
import os
import sys
import time
from collections.abc import Callable

from steps.clients.store import AlreadyWritten, Store
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.errors import StepError
from workflows.app.runs.screen import Screen
from workflows.engines.argo.home import NoWorkflow
from workflows.engines.folders import RunFolder

COMMAND = "bringup cancel"


def by_me(how: str = COMMAND) -> run_records.Cancelled:
    """Return a record that the user of this command cancels a run now, by the means `how`."""
    try:
        who = getpass.getuser()
    except (OSError, KeyError):  # an account without a name; Python before 3.13 raises KeyError
        who = f"uid {os.getuid()}"
    return run_records.Cancelled(who=who, how=how, when=time.time())


def keep_on_argo(screen: Screen, keep: Callable[[], object]) -> None:
    """Store who cancelled a run on Argo by calling `keep`, which `cancellation.cancel` returned; print a warning if that fails."""
    try:
        keep()
    except (StepError, NoWorkflow) as error:
        screen.lines([f"warning: the Workflow says who cancelled it, its report may not: {error}"])


def by_command(folder: RunFolder, how: str = COMMAND) -> bool:
    """Record that this user cancels a run, by the means `how`; return False if a cancellation was recorded before."""
    try:
        Store(folder.home.store).write(run_records.cancellation_key(folder.name), canonical(by_me(how)))
    except AlreadyWritten:
        return False
    return True


def by_signal(folder: RunFolder) -> bool:
    """Record that this user ended a run by a signal; return False if a cancellation was recorded before."""
    return by_command(folder, "Ctrl-C" if sys.stdin.isatty() else "a signal")


def take_back(folder: RunFolder) -> None:
    """Delete a run's record of cancellation, because the run was not cancelled after all."""
    Store(folder.home.store).path(run_records.cancellation_key(folder.name)).unlink(missing_ok=True)


def told(folder: RunFolder, message: str) -> str:
    """Return how a run ended: who cancelled it if that is recorded, else the engine's own `message`; empty if that is empty."""
    data = Store(folder.home.store).read(run_records.cancellation_key(folder.name))
    return run_records.decode_cancellation(data).sentence if data and message else message
