"""Runs that this machine knows, on either engine: list them, and compare the evidence of two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from steps.clients.store import Store
from steps.report import verify
from steps.report.timeline import stamp
from workflows.app.runs import report_assembly
from workflows.engines import run_comparison
from workflows.engines.argo import run_memory
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.errors import JournalForeignError, RunDirectoryError
from workflows.engines.local.result import read_status


@dataclass(frozen=True)
class ListedRun:
    """A row of `bringup runs`.

    `state` is the engine's phase, `interrupted` if no engine drives the run, or for Argo what is known here.
    """

    run: str
    engine: str
    started: str
    state: str


def listed_runs(home: StateFolder) -> tuple[ListedRun, ...]:
    """Return all runs of this machine, the newest first. A run whose journal cannot be read is listed as `unreadable`."""
    return tuple(_listed(home.run(name)) for name in reversed(home.runs()))


def _listed(folder: RunFolder) -> ListedRun:
    memory = run_memory.read(folder)
    if memory is not None:
        # nothing is asked of the home cluster here: a list must be quick, and work while that cluster is away
        state = "ended" if memory.ended else f"on Argo, namespace {memory.where.namespace}; see bringup status {folder.name}"
        return ListedRun(folder.name, "argo", "", state)
    try:
        status = read_status(folder.engine, is_verified=False)
    except (JournalForeignError, RunDirectoryError):
        return ListedRun(folder.name, "local", "", "unreadable")
    state = status.phase if status.alive or status.finished else "interrupted"
    waiting = ", waits for an approval" if status.alive and status.gates else ""
    return ListedRun(folder.name, "local", stamp(status.began) if status.began else "", f"{state or 'starting'}{waiting}")


def differences(home: StateFolder, run: str, other: str) -> tuple[str, ...]:
    """Return the differences of two runs' evidence except for times and ids (see `run_comparison`). Raises BadTask.

    First come the runs whose files are not what was sealed: equal evidence proves nothing if somebody wrote it.
    """
    compared = run_comparison.differences(Store(home.store), run, other)
    return (*(line for name in dict.fromkeys((run, other)) for line in _unsealed(home.run(name))), *compared)


def _unsealed(folder: RunFolder) -> Iterator[str]:
    if broken := report_assembly.seal_differences(folder):
        sentence = f"the run's files are not what was sealed ({verify.listed(broken)})"
        yield f"{folder.name}: {sentence}; see: bringup verify {folder.name}"
