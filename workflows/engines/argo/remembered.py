"""What this machine remembers of a run on Argo: where it runs, what was shown of it, its tasks; so commands need no flags."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from workflows.engines.argo.home import Home, NoWorkflow, Where
from workflows.engines.argo.objects import Workflow
from workflows.engines.folders import RunFolder

FILE = "argo.json"


class Memory(Struct, frozen=True, kw_only=True):
    """`shown` maps waiting approvals (node names) to the digest of the evidence that was last shown for them."""

    where: Where
    shown: dict[str, str] = {}


def read(folder: RunFolder) -> Memory | None:
    """The memory of a run; None when it is none of Argo's."""
    try:
        return msgspec.json.decode((folder.engine / FILE).read_bytes(), type=Memory)
    except FileNotFoundError:
        return None


def write(folder: RunFolder, memory: Memory) -> None:
    """Remember a run."""
    folder.engine.mkdir(parents=True, exist_ok=True)
    fresh = folder.engine / f".{FILE}.new"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(memory)))
    fresh.replace(folder.engine / FILE)


def shown(folder: RunFolder, evidence: Mapping[str, str]) -> None:
    """Remember which evidence was shown."""
    memory = read(folder)
    if memory is not None and any(memory.shown.get(node) != digest for node, digest in evidence.items()):
        write(folder, msgspec.structs.replace(memory, shown={**memory.shown, **evidence}))


def learn(home: Home, workflow: Workflow, folder: RunFolder) -> None:
    """Bring the tasks of a run to this machine if they are not here: what was planned, and who may approve.

    Raises NoWorkflow when its template or ConfigMap is gone.
    """
    place = folder.inputs / "tasks"
    if place.exists():
        return
    if not workflow.template:
        raise NoWorkflow(f"Workflow {workflow.metadata.name} is no run of ours: it has no WorkflowTemplate")
    volumes = home.template(workflow.template)["spec"].get("volumes") or ()
    name = next((volume["configMap"]["name"] for volume in volumes if volume["name"] == "tasks" and "configMap" in volume), "")
    found = home.ask(lambda kube: kube.get(home.core("configmaps", name), dict[str, Any]))
    if found is None:
        raise NoWorkflow(f"namespace {home.namespace} of the home cluster has no ConfigMap {name}, which holds the run's tasks")
    place.mkdir(parents=True)
    for file, text in (found.get("data") or {}).items():
        (place / file).write_text(text)
