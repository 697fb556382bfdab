"""Start and resume runs on the local engine, with the rendered manifest, this machine's folders and the steps' environment."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from steps.clients.clock import SimulatedClock
from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract import paths
from workflows.engines import locks, run_inputs
from workflows.engines.folders import RunFolder
from workflows.engines.local.executor import StartProcess, start_process
from workflows.engines.local.local_engine import LocalEngine, TimePassing
from workflows.engines.local.result import Observer, RunResult
from workflows.engines.local.run_settings import RunPaths, default_environment

PARALLELISM = 8
"""Number of steps that run at the same time; more than there are cores, since most steps wait for something else."""


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
        environment=environment(extra),
        paths=RunPaths(folder.inputs / "tasks", folder.inputs / "fleet", folder.inputs / "secrets", folder.home.store),
        parallelism=PARALLELISM,
        observer=observer,
        passing=_passing(extra),
        start=spawn,
    )
    # a rehearsal has a cluster of its own and needs no lock
    with nullcontext() if SIMULATOR in extra else _cluster_lock(folder, template):
        return engine.run()


def resume(folder: RunFolder, observer: Observer | None) -> RunResult:
    """Continue a run on real hosts whose engine has died, to its end. A finished run is returned unchanged. Raises ClusterBusy."""
    with _cluster_lock(folder, _document(folder)["template"]):
        return LocalEngine.resume(folder.engine, environment({}), observer)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of every step of a local run, with the variables `extra` added."""
    return {**default_environment(), paths.ENGINE: "local", **extra}


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
