"""Who cancelled a run: kept beside its evidence, and told wherever the engine would name its own strategy."""

import getpass
import os
import sys
import time
from collections.abc import Callable

from steps.clients.store import AlreadyWritten, Store
from steps.contract import cancelled
from steps.contract.canonical import canonical
from steps.errors import StepError
from workflows.cli import output
from workflows.engines.folders import RunFolder

COMMAND = "bringup cancel"


def by_me(how: str = COMMAND) -> cancelled.Cancelled:
    """That whoever runs this command cancels now."""
    return cancelled.Cancelled(who=_who(), how=how, when=time.time())


def kept(keep: Callable[[], None]) -> None:
    """Let a run on Argo keep who cancelled it (what `stop.cancel` returned); where that cannot be done, only a warning says so."""
    from workflows.engines.argo.home import NoWorkflow

    try:
        keep()
    except (StepError, NoWorkflow) as error:
        output.lines([f"warning: the Workflow says who cancelled it, its report may not: {error}"])


def by_command(folder: RunFolder, how: str = COMMAND) -> bool:
    """Keep that this person cancels it; `how`: by what, if not by `bringup cancel`. Whether nobody had before."""
    return _keep(folder, how)


def by_signal(folder: RunFolder) -> bool:
    """Keep that whoever runs this command ended it, unless it was cancelled by command: then that is known already."""
    return _keep(folder, "Ctrl-C" if sys.stdin.isatty() else "a signal")


def take_back(folder: RunFolder) -> None:
    """Forget it: nothing was cancelled."""
    Store(folder.home.store).path(cancelled.key(folder.name)).unlink(missing_ok=True)


def told(folder: RunFolder, message: str) -> str:
    """What is said of how a run ended: who cancelled it, else the engine's own message."""
    data = Store(folder.home.store).read(cancelled.key(folder.name))
    return cancelled.decode(data).sentence if data and message else message


def _keep(folder: RunFolder, how: str) -> bool:
    try:
        Store(folder.home.store).write(cancelled.key(folder.name), canonical(by_me(how)))
    except AlreadyWritten:
        return False
    return True


def _who() -> str:
    """The login name; an account without one by its number."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # KeyError until Python 3.13
        return f"uid {os.getuid()}"
