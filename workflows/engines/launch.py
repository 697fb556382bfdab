"""Start and resume runs on the local engine, with the rendered manifest, this machine's folders and the steps' environment."""

import copy
import secrets
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from steps.clients.clock import SimulatedClock
from steps.clients.environment import SEAL_KEY, SIMULATOR, SIMULATOR_TOKEN
from steps.clients.store import Store
from steps.contract import paths, run_records
from steps.contract.runs import run_seal
from workflows.engines import locks, run_inputs, seal_keys
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.executor import StartProcess, start_process
from workflows.engines.local.local_engine import LocalEngine, TimePassing
from workflows.engines.local.result import Observer, RunResult
from workflows.engines.local.run_settings import RunPaths, default_environment
from workflows.render import names

PARALLELISM = 8
"""Number of steps that run at the same time; more than there are cores, since most steps wait for something else."""
CLOSING_SECONDS = 120
"""Longest time for report and seal of a run that was ended at once: somebody waits for the command's end."""


def start(
    folder: RunFolder, extra: Mapping[str, str], observer: Observer | None, reuse: str = "none", spawn: StartProcess = start_process
) -> RunResult:
    """Run the manifest in `folder.inputs` from the start to its end. Raises ClusterBusy.

    `extra` is added to each step's environment. `reuse` names an earlier run whose results may be reused, or is `none`.
    """
    document = _document(folder)
    template = document["template"]
    namespace = document["workflow"]["metadata"]["namespace"]
    workflow = {**document["workflow"], "metadata": {"name": folder.name, "namespace": namespace}}
    if reuse != "none":
        workflow["spec"] = {**workflow["spec"], "arguments": {"parameters": [{"name": "reuse", "value": reuse}]}}
    engine = LocalEngine(
        folder.engine,
        workflow,
        {template["metadata"]["name"]: template},
        environment=environment(extra, folder.home),
        paths=_paths(folder),
        parallelism=slots(template),
        observer=observer,
        passing=_passing(extra),
        start=spawn,
    )
    # a rehearsal has a cluster of its own and needs no lock
    with nullcontext() if SIMULATOR in extra else _cluster_lock(folder, template):
        return engine.run()


def slots(template: Mapping[str, Any]) -> int:
    """Return how many steps of a WorkflowTemplate run at the same time: as usual, or more if a graph of builds may have more."""
    spec = template["spec"]
    graphs = (entry.get("parallelism") for entry in spec["templates"] if entry["name"].endswith(names.GRAPH))
    limits = [int(limit) for limit in (spec.get("parallelism"), *graphs) if limit]
    return max([PARALLELISM, *limits])


def resume(folder: RunFolder, observer: Observer | None) -> RunResult:
    """Continue a run on real hosts whose engine has died, to its end. A finished run is returned unchanged. Raises ClusterBusy."""
    with _cluster_lock(folder, _document(folder)["template"]):
        return LocalEngine.resume(folder.engine, environment({}, folder.home), observer)


def must_close(result: RunResult) -> bool:
    """Return True if a run ended without its exit handler, by a second signal or `cancel --now`."""
    return result.state.shutdown == "Terminate"


def close(folder: RunFolder, phase: str) -> bool:
    """Write report and seal of a run that ended as `phase` without its exit handler; return True if it is sealed now.

    Only the exit handler's tasks run, in a run directory of their own and for CLOSING_SECONDS at most. A signal ends them as it
    ends any run. A run whose first task created nothing, or that is sealed, is left as it is.
    """
    stored = Store(folder.home.store)
    seal_key = f"runs/{folder.name}/{run_seal.FILE}"
    if stored.read(run_records.header_key(folder.name)) is None or stored.read(seal_key) is not None:
        return stored.read(seal_key) is not None
    workflow, template = _closing(_document(folder), folder.name, phase)
    engine = LocalEngine(
        folder.engine / f"closing-{secrets.token_hex(4)}",
        workflow,
        {template["metadata"]["name"]: template},
        environment=environment({}, folder.home),
        paths=_paths(folder),
        parallelism=PARALLELISM,
    )
    engine.run()
    return stored.read(seal_key) is not None


def _closing(document: Mapping[str, Any], run: str, phase: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a Workflow and its template that run the exit handler of another run, which ended as `phase`."""
    template = copy.deepcopy(document["template"])
    spec = template["spec"]
    handler = spec.pop("onExit")
    spec |= {"entrypoint": handler, "activeDeadlineSeconds": CLOSING_SECONDS}
    for task in next(each for each in spec["templates"] if each["name"] == handler)["dag"]["tasks"]:
        for parameter in task.get("arguments", {}).get("parameters", ()):
            if parameter["value"] == "{{workflow.status}}":
                parameter["value"] = phase
    namespace = document["workflow"]["metadata"]["namespace"]
    return {**document["workflow"], "metadata": {"name": run, "namespace": namespace}}, template


def _paths(folder: RunFolder) -> RunPaths:
    return RunPaths(folder.inputs / "tasks", folder.inputs / "fleet", folder.inputs / "secrets", folder.home.store)


def environment(extra: Mapping[str, str], home: StateFolder) -> dict[str, str]:
    """Return the environment of every step of a local run, with the variables `extra` added.

    It names the key that signs seals, which is made at the first run.
    As in the image of steps, interpreters import nothing from their current folder.
    """
    key = seal_keys.ensure(home)
    signing = {SEAL_KEY: str(key)} if key else {}
    return {**default_environment(), **signing, "PYTHONSAFEPATH": "1", paths.ENGINE: "local", **extra}


def _passing(extra: Mapping[str, str]) -> TimePassing | None:
    """Return a function that lets a number of seconds pass in the simulated cluster; None outside a rehearsal."""
    if SIMULATOR not in extra:
        return None
    clock = SimulatedClock(extra[SIMULATOR], extra[SIMULATOR_TOKEN])

    def passing(seconds: float) -> float:
        start_time = clock.now()
        clock.pause(seconds, start_time + seconds)
        return seconds

    return passing


def _document(folder: RunFolder) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode((folder.inputs / run_inputs.MANIFEST).read_bytes())
    return document


def _cluster_lock(folder: RunFolder, template: Mapping[str, Any]) -> AbstractContextManager[None]:
    return locks.cluster(folder.home, template["metadata"]["labels"]["bringup/cluster"])
