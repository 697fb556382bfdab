"""The record of who cancelled a run, kept beside its evidence and shown in place of the engine's own message."""

import getpass
import os
import sys
import time
from collections.abc import Callable

from steps.clients.store import AlreadyWritten, Store
from steps.contract import run
from steps.contract.canonical import canonical
from steps.errors import StepError
from workflows.app.runs.screen import Screen
from workflows.engines.argo.home import NoWorkflow
from workflows.engines.folders import RunFolder

COMMAND = "bringup cancel"


def by_me(how: str = COMMAND) -> run.Cancelled:
    """Return the record that the user of this command cancels now."""
    return run.Cancelled(who=_who(), how=how, when=time.time())


def keep_on_argo(screen: Screen, keep: Callable[[], object]) -> None:
    """Let a run on Argo store who cancelled it, by the function that `cancellation.cancel` returned; if that fails, print a
    warning.
    """
    try:
        keep()
    except (StepError, NoWorkflow) as error:
        screen.lines([f"warning: the Workflow says who cancelled it, its report may not: {error}"])


def by_command(folder: RunFolder, how: str = COMMAND) -> bool:
    """Record that this user cancels the run; `how` names the means if not `bringup cancel`. Return True if it was not cancelled
    before.
    """
    return _keep(folder, how)


def by_signal(folder: RunFolder) -> bool:
    """Record that this user ended the run by a signal, unless it was cancelled by command before."""
    return _keep(folder, "Ctrl-C" if sys.stdin.isatty() else "a signal")


def take_back(folder: RunFolder) -> None:
    """Delete the record, because nothing was cancelled."""
    Store(folder.home.store).path(run.cancellation_key(folder.name)).unlink(missing_ok=True)


def told(folder: RunFolder, message: str) -> str:
    """Return how a run ended as text: who cancelled it, else the engine's own message."""
    data = Store(folder.home.store).read(run.cancellation_key(folder.name))
    return run.decode_cancellation(data).sentence if data and message else message


def _keep(folder: RunFolder, how: str) -> bool:
    try:
        Store(folder.home.store).write(run.cancellation_key(folder.name), canonical(by_me(how)))
    except AlreadyWritten:
        return False
    return True


def _who() -> str:
    """Return the login name, or the uid of an account without one."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # Python before 3.13 raises KeyError
        return f"uid {os.getuid()}"
