"""Locks of local runs: a lock file admits one run per cluster at a time, as the Workflow's mutex does on Argo."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from steps.contract.exit import ExitCode
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import read_status


class ClusterBusy(RuntimeError):
    """Exception: another run of this machine works on the same cluster."""

    exit_code = ExitCode.TEMPORARY
    hint = "see `bringup status`; wait for that run, or cancel it"


class RunDriven(RuntimeError):
    """Exception: another process drives this run."""

    exit_code = ExitCode.TEMPORARY
    hint = "follow it with `bringup watch`, or stop it with `bringup cancel`"


def require_idle(folder: RunFolder) -> None:
    """Raise RunDriven if an engine drives the run now."""
    if read_status(folder.engine).alive:
        raise RunDriven(f"run {folder.name} is being driven by another process")


@contextmanager
def cluster(home: StateFolder, name: str) -> Iterator[None]:
    """Hold the lock on a cluster inside a `with` block; the kernel also releases it when the process ends. Raises ClusterBusy."""
    folder = home.root / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    # children must not inherit the lock, or it would outlive this process
    handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterBusy(f"another run on this machine works on cluster {name}") from error
        yield
    finally:
        os.close(handle)
