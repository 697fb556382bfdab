"""Starts and continues runs on the embedded engine: the rendered manifest, this machine's folders, the right environment."""

from collections.abc import Mapping

import msgspec

from steps.contract import paths
from workflows.engines import inputs
from workflows.engines.folders import RunFolder
from workflows.engines.local.driver import default_environment
from workflows.engines.local.engine import LocalEngine
from workflows.engines.local.paths import RunPaths
from workflows.engines.local.result import Observer, RunResult

PARALLELISM = 8
"""Steps at one time: most of them wait for something else, so more than cores."""


def start(folder: RunFolder, extra: Mapping[str, str], observer: Observer | None, reuse: str = "none") -> RunResult:
    """Run the manifest in `folder.inputs` from its beginning. `extra` is added to every step's environment."""
    document = msgspec.json.decode((folder.inputs / inputs.MANIFEST).read_bytes())
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
    )
    return engine.run()


def resume(folder: RunFolder, extra: Mapping[str, str], observer: Observer | None) -> RunResult:
    """Go on with a run whose engine is gone; a finished run is returned as it is."""
    return LocalEngine.resume(folder.engine, environment(extra), observer)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """What every step of a local run has in its environment."""
    return {**default_environment(), paths.ENGINE: "local", **extra}
