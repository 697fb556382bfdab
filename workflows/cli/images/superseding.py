"""Ends builds of the same image that go on, so that the newest state of a recipe is built and no older one before it.

Last of all, when nothing but the start of the newer build is missing: one that could not start ends none.
"""

import time
from collections.abc import Iterable

import msgspec

from steps import timeouts
from steps.contract.cancelled import Cancelled
from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.runs import cancelling, following
from workflows.engines import inputs
from workflows.engines.argo import going_on, stop
from workflows.engines.argo.home import Home as Away
from workflows.engines.argo.objects import CLUSTER, PIPELINE, Owner, Workflow
from workflows.engines.folders import Home, RunFolder
from workflows.engines.local.errors import JournalForeignError, RunDirectoryError
from workflows.engines.local.result import read_status
from workflows.render.bundle import Bundle

NEWER = "a newer build"
"""Why it is cancelled."""


class StillGoing(RuntimeError):
    """A build that was told to end has not."""

    exit_code = ExitCode.TEMPORARY
    hint = "see `bringup status RUN`; `bringup cancel --now RUN` ends it without a report"


def here(home: Home, bundle: Bundle) -> None:
    """End builds of what was rendered on the embedded engine of this machine, and wait until they are gone. Raises StillGoing."""
    wanted = bundle.template["metadata"]["labels"]
    going = [folder for folder in map(home.run, home.runs()) if _is_of(folder, wanted) and _alive(folder)]
    for folder in going:
        cancelling.by_command(folder, NEWER)
        following.send(folder, "stop", "", {}, "superseded by a newer build")
        output.lines([f"{folder.name} is superseded, and is being cancelled"])
    until = time.monotonic() + timeouts.SUPERSEDED
    while going := [folder for folder in going if _alive(folder)]:
        if time.monotonic() > until:
            raise StillGoing(f"run {going[0].name} was cancelled {timeouts.SUPERSEDED:.0f} s ago and has not ended")
        time.sleep(timeouts.SUPERSEDED_POLL)


def _is_of(folder: RunFolder, wanted: dict[str, str]) -> bool:
    """Whether a run is one of this pipeline and spec, by the labels of what was rendered: names of others may begin alike."""
    try:
        manifest = msgspec.json.decode((folder.inputs / inputs.MANIFEST).read_bytes())
        labels = manifest["template"]["metadata"]["labels"]
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return False
    return all(labels.get(key) == wanted[key] for key in (CLUSTER, PIPELINE))


def _alive(folder: RunFolder) -> bool:
    try:
        return read_status(folder.engine).alive
    except (JournalForeignError, RunDirectoryError):
        return False


def on_argo(home: Away, name: str, pipeline: str) -> None:
    """Ask home to end builds of this image; Argo's mutex holds the newer one until they are gone."""
    _end(home, going_on.runs(home, name, pipeline), cancelling.by_me(NEWER))


def by_schedule(home: Away, name: str, pipeline: str, digest: str, owner: Owner | None) -> str:
    """End builds of this image but for the one that does exactly this plan, whose name is given: it goes on as if this start of the
    schedule, `owner`, had submitted it. Empty where none does."""
    found = going_on.runs(home, name, pipeline)
    same = going_on.doing(found, digest)
    others = [run for run in found if run is not same and not run.spec.shutdown]
    said = Cancelled(who=f"the schedule of {name}", how=NEWER, when=time.time())
    _end(home, others, said, stored=False)  # its account makes no pods
    if same is None:
        return ""
    if owner is not None:
        going_on.take_over(home, same, owner)
    return same.metadata.name


def _end(home: Away, runs: Iterable[Workflow], said: Cancelled, *, stored: bool = True) -> None:
    """Ask home to end these runs; each keeps on its Workflow what is said of that, and by a pod in its store (`stored`)."""
    for run in runs:
        try:
            keep = stop.cancel(home, run.metadata.name, said, stored=stored)
        except stop.Ended:
            continue
        output.lines([f"{run.metadata.name} is superseded, and is being cancelled"])
        cancelling.kept(keep)
