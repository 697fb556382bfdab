"""End unfinished builds of an image or a stack when a newer one starts, so that the newest state need not wait for older ones.

Callers do this last, when only the start of the newer build is missing: a build that could not start ends no other.
"""

import time
from collections.abc import Iterable

import msgspec

from steps import timeouts
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.exit import ExitCode
from steps.contract.run_records import Cancelled
from workflows.app.runs import cancel_records, local_runs
from workflows.app.runs.screen import Screen
from workflows.engines import run_inputs
from workflows.engines.argo import cancellation, submission
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import CLUSTER, PIPELINE, OwnerReference, Workflow
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.errors import JournalForeignError, RunDirectoryError
from workflows.engines.local.result import read_status
from workflows.render.bundle import Bundle

NEWER = "a newer build"
"""Entry in the record of a cancelled run that says by what it was cancelled."""


class StillGoing(RuntimeError):
    """Temporary error for a cancelled build that has not ended in time."""

    exit_code = ExitCode.TEMPORARY
    hint = "see `bringup status RUN`; `bringup cancel --now RUN` ends it without a report"


def end_here(screen: Screen, home: StateFolder, bundle: Bundle) -> None:
    """Cancel unfinished builds of the same pipeline and spec on this machine and wait until their engines are gone.

    Raises StillGoing.
    """
    labels = bundle.template["metadata"]["labels"]
    going = [folder for folder in map(home.run, home.runs()) if _is_of(folder, labels) and _alive(folder)]
    for folder in going:
        cancel_records.by_command(folder, NEWER)
        local_runs.send(folder, "stop", "", {}, "superseded by a newer build")
        screen.lines([f"{folder.name} is superseded, and is being cancelled"])
    until = time.monotonic() + timeouts.SUPERSEDED
    while going := [folder for folder in going if _alive(folder)]:
        if time.monotonic() > until:
            raise StillGoing(f"run {going[0].name} was cancelled {timeouts.SUPERSEDED:.0f} s ago and has not ended")
        time.sleep(timeouts.SUPERSEDED_POLL)


def _is_of(folder: RunFolder, expected: dict[str, str]) -> bool:
    """Return True if the run's manifest has the pipeline and spec labels `expected`.

    Names are not compared, as others may begin alike.
    """
    try:
        manifest = msgspec.json.decode((folder.inputs / run_inputs.MANIFEST).read_bytes())
        labels = manifest["template"]["metadata"]["labels"]
    except (OSError, KeyError, TypeError, *UNREADABLE_JSON):
        return False
    return all(labels.get(key) == expected[key] for key in (CLUSTER, PIPELINE))


def _alive(folder: RunFolder) -> bool:
    try:
        return read_status(folder.engine).alive
    except (JournalForeignError, RunDirectoryError):
        return False


def end_on_argo(screen: Screen, home: Home, name: str, pipeline: str) -> None:
    """Ask the home cluster to cancel unfinished builds of this product; Argo's mutex holds the newer one until they are gone."""
    _end(screen, home, submission.unfinished_runs(home, name, pipeline), cancel_records.by_me(NEWER))


def end_by_schedule(screen: Screen, home: Home, name: str, pipeline: str, digest: str, owner: OwnerReference | None) -> str:
    """Cancel unfinished builds of this product except one of exactly this plan, and return the name of that one (empty: none).

    That build goes on; the schedule's Workflow `owner` becomes its owner, as if it had submitted it.
    """
    runs = submission.unfinished_runs(home, name, pipeline)
    same = submission.run_of_plan(runs, digest)
    others = [run for run in runs if run is not same and not run.spec.shutdown]
    record = Cancelled(who=f"the schedule of {name}", how=NEWER, when=time.time())
    _end(screen, home, others, record, stored=False)  # the schedule's account may create no pods
    if same is None:
        return ""
    if owner is not None:
        submission.change_owner(home, same, owner)
    return same.metadata.name


def _end(screen: Screen, home: Home, runs: Iterable[Workflow], record: Cancelled, *, stored: bool = True) -> None:
    """Ask the home cluster to cancel these runs; each Workflow records by whom.

    With `stored` a pod records it in the run's store too.
    """
    for run in runs:
        try:
            keep = cancellation.cancel(home, run.metadata.name, record, stored=stored)
        except cancellation.AlreadyEnded:
            continue
        screen.lines([f"{run.metadata.name} is superseded, and is being cancelled"])
        cancel_records.keep_on_argo(screen, keep)
