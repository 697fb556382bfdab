"""Ends builds of the same image that go on, so that the newest state of a recipe is built and no older one before it."""

import time
from collections.abc import Iterable

import msgspec

from steps import timeouts
from steps.contract.cancelled import Cancelled
from steps.contract.exit import ExitCode
from workflows.cli import cancelling, following, kubeconfigs, output
from workflows.cli.starting import Place
from workflows.engines import inputs
from workflows.engines.argo import going_on, stop
from workflows.engines.argo.home import Home as Away
from workflows.engines.argo.objects import CLUSTER, PIPELINE, Workflow
from workflows.engines.folders import Home, RunFolder
from workflows.engines.local.errors import JournalForeignError, RunDirectoryError
from workflows.engines.local.result import read_status

NEWER = "a newer build"
"""Why it is cancelled."""


class StillGoing(RuntimeError):
    """A build that was told to end has not."""

    exit_code = ExitCode.TEMPORARY
    hint = "see `bringup status RUN`; `bringup cancel --now RUN` ends it without a report"


def here(home: Home, name: str, pipeline: str) -> None:
    """End builds of this image on the embedded engine of this machine, and wait until they are gone. Raises StillGoing."""
    going = [folder for folder in map(home.run, home.runs()) if _is_of(folder, name, pipeline) and _alive(folder)]
    for folder in going:
        cancelling.by_command(folder)
        following.send(folder, "stop", "", {}, "superseded by a newer build")
        output.lines([f"{folder.name} is superseded, and is being cancelled"])
    until = time.monotonic() + timeouts.SUPERSEDED
    while going := [folder for folder in going if _alive(folder)]:
        if time.monotonic() > until:
            raise StillGoing(f"run {going[0].name} was cancelled {timeouts.SUPERSEDED:.0f} s ago and has not ended")
        time.sleep(timeouts.SUPERSEDED_POLL)


def _is_of(folder: RunFolder, name: str, pipeline: str) -> bool:
    """Whether a run is one of this pipeline and spec, by the labels of what was rendered: names of others may begin alike."""
    try:
        manifest = msgspec.json.decode((folder.inputs / inputs.MANIFEST).read_bytes())
        labels = manifest["template"]["metadata"]["labels"]
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return False
    return (labels.get(CLUSTER), labels.get(PIPELINE)) == (name, pipeline)


def _alive(folder: RunFolder) -> bool:
    try:
        return read_status(folder.engine).alive
    except (JournalForeignError, RunDirectoryError):
        return False


def on_argo(place: Place, name: str, pipeline: str) -> None:
    """Ask home to end builds of this image; Argo's mutex holds the newer one until they are gone."""
    home = kubeconfigs.home(place.kubeconfig, place.context, place.namespace)
    end(home, going_on.runs(home, name, pipeline), cancelling.by_me(NEWER))


def end(home: Away, runs: Iterable[Workflow], said: Cancelled, *, stored: bool = True) -> None:
    """Ask home to end these runs; each keeps on its Workflow what is said of that, and by a pod in its store (`stored`)."""
    for run in runs:
        try:
            keep = stop.cancel(home, run.metadata.name, said, stored=stored)
        except stop.Ended:
            continue
        output.lines([f"{run.metadata.name} is superseded, and is being cancelled"])
        cancelling.kept(keep)
