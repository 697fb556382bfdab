"""What this machine remembers of a run on Argo: where it runs, its tasks; so commands need no flags."""

import os
import shutil
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.run import PLAN_FILE
from workflows.engines.announce import Telling
from workflows.engines.argo.home import Home, NoTemplate, NotOurs, Where
from workflows.engines.argo.objects import Workflow
from workflows.engines.folders import RunFolder

FILE = "argo.json"


class Memory(Struct, frozen=True, kw_only=True):
    """`version` is what a person vouched for where Argo's version may not be read, empty where nobody had to; `telling` is what is
    announced by a command of this machine, by the stage that waits. `pulled` is when the store was last read whole (seconds since
    the epoch, 0: never), and `ended`: the run had ended by then, so what was read is all that it left."""

    where: Where
    version: str = ""
    telling: dict[str, Telling] = {}
    pulled: float = 0.0
    ended: bool = False


def read(folder: RunFolder) -> Memory | None:
    """The memory of a run; None when it is none of Argo's."""
    try:
        return msgspec.json.decode((folder.engine / FILE).read_bytes(), type=Memory)
    except FileNotFoundError:
        return None


def write(folder: RunFolder, memory: Memory) -> None:
    """Remember a run."""
    folder.engine.mkdir(parents=True, exist_ok=True)
    fresh = folder.engine / f".{FILE}.{os.getpid()}.new"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(memory)))
    fresh.replace(folder.engine / FILE)


def pulled(folder: RunFolder, when: float, *, ended: bool) -> None:
    """Remember that the store was read whole, beginning at `when`."""
    memory = read(folder)
    if memory is not None:
        write(folder, msgspec.structs.replace(memory, pulled=when, ended=ended))


def knows_tasks(folder: RunFolder) -> bool:
    """Whether the tasks of a run are on this machine, all of them."""
    return (folder.inputs / "tasks" / PLAN_FILE).exists()


def learn(home: Home, workflow: Workflow, folder: RunFolder) -> None:
    """Bring the tasks of a run to this machine if they are not here: what was planned, and who may approve.

    Raises NotOurs, NoTemplate when its template or ConfigMap is gone.
    """
    if knows_tasks(folder):
        return
    volumes = home.made_from(workflow).get("volumes") or ()
    name = next((volume["configMap"]["name"] for volume in volumes if volume["name"] == "tasks" and "configMap" in volume), "")
    if not name:
        raise NotOurs(f"WorkflowTemplate {workflow.template} mounts no tasks: it is of another version of bringup")
    found = home.ask(lambda kube: kube.get(home.core("configmaps", name), dict[str, Any]))
    if found is None:
        raise NoTemplate(f"namespace {home.namespace} of the home cluster has no ConfigMap {name}, which holds the run's tasks")
    _keep(folder, found.get("data") or {})


def _keep(folder: RunFolder, tasks: Mapping[str, str]) -> None:
    """All tasks or none: whoever is ended half-way leaves nothing that looks like tasks."""
    place, fresh = folder.inputs / "tasks", folder.inputs / f".tasks.{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file, text in tasks.items():
        (fresh / file).write_text(text)
    if place.exists() and not knows_tasks(folder):
        shutil.rmtree(place, ignore_errors=True)
    try:
        fresh.rename(place)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not knows_tasks(folder):
            raise  # else another command has learnt them meanwhile
