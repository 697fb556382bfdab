"""Starts and continues runs on the embedded engine: the rendered manifest, this machine's folders, the right environment."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from steps.clients.clock import SimulatedClock
from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract import paths
from workflows.engines import inputs, locks
from workflows.engines.folders import RunFolder
from workflows.engines.local.driver import Passing
from workflows.engines.local.engine import LocalEngine
from workflows.engines.local.paths import RunPaths
from workflows.engines.local.result import Observer, RunResult
from workflows.engines.local.settings import default_environment

PARALLELISM = 8
"""Steps at one time: most of them wait for something else, so more than cores."""


def start(folder: RunFolder, extra: Mapping[str, str], observer: Observer | None, reuse: str = "none") -> RunResult:
    """Run the manifest in `folder.inputs` from its beginning. `extra` is added to every step's environment."""
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
    )
    with _alone(folder, template, extra):
        return engine.run()


def resume(folder: RunFolder, extra: Mapping[str, str], observer: Observer | None) -> RunResult:
    """Go on with a run whose engine is gone; a finished run is returned as it is."""
    with _alone(folder, _document(folder)["template"], extra):
        return LocalEngine.resume(folder.engine, environment(extra), observer)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What every step of a local run has in its environment."""
    return {**default_environment(), paths.ENGINE: "local", **extra}


def _passing(extra: Mapping[str, str]) -> Passing | None:
    """In a rehearsal, the simulated cluster lives through the engine's waits as it does through those of steps."""
    if SIMULATOR not in extra:
        return None
    clock = SimulatedClock(extra[SIMULATOR], extra[SIMULATOR_TOKEN])

    def passing(seconds: float) -> float:
        before = clock.now()
        clock.pause(seconds, before + seconds)
        return seconds

    return passing


def _document(folder: RunFolder) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode((folder.inputs / inputs.MANIFEST).read_bytes())
    return document


def _alone(folder: RunFolder, template: Mapping[str, Any], extra: Mapping[str, str]) -> AbstractContextManager[None]:
    """The lock on the run's cluster; a rehearsal has a cluster of its own and needs none."""
    simulated = SIMULATOR in extra
    return nullcontext() if simulated else locks.cluster(folder.home, template["metadata"]["labels"]["bringup/cluster"])
