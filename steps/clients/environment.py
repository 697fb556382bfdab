"""The environment of a step: its five folders, the run, the engine, and the simulator of a rehearsal."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from steps.contract import paths
from steps.errors import BadTask

SIMULATOR = "BRINGUP_SIMULATOR"
SIMULATOR_TOKEN = "BRINGUP_SIMULATOR_TOKEN"
SIMULATOR_PIN = "BRINGUP_SIMULATOR_PIN"
GIT_ROOT = "BRINGUP_GIT_ROOT"
SEAL_KEY = "BRINGUP_SEAL_KEY"


class Environment(Struct, frozen=True, kw_only=True):
    """Folders and settings of the running step, read from environment variables.

    `simulator` is the URL of a rehearsal's control API, else empty; `simulator_pin` is the SHA-256 digest of its certificate, if it
    has one. `git_root` is the folder of bare repositories that replace all
    Git servers in a rehearsal, else None. `namespace` is the run's on Argo. `seal_key` is the machine's own signing
    key, for a spec that names none; None without one.
    """

    tasks: Path
    fleet: Path
    secrets: Path
    store: Path
    out: Path
    run: str
    engine: str
    reuse: str = "none"
    source: str = "none"
    simulator: str = ""
    simulator_token: str = ""
    simulator_pin: str = ""
    git_root: Path | None = None
    namespace: str = ""
    seal_key: Path | None = None

    @property
    def is_on_argo(self) -> bool:
        """Return True if this process runs in a pod of a run on Argo."""
        return self.engine != "local"


def read(environ: Mapping[str, str] | None = None) -> Environment:
    """Return the environment of this process. Raises BadTask naming every missing variable."""
    env = os.environ if environ is None else environ
    required = [paths.variable(folder) for folder in paths.FOLDERS] + [paths.RUN]
    missing = [name for name in required if not env.get(name)]
    if missing:
        raise BadTask(
            f"environment lacks {', '.join(missing)}", hint="a step is started by an engine, or by hand with these variables set"
        )
    folders = {folder: Path(env[paths.variable(folder)]) for folder in paths.FOLDERS}
    return Environment(
        **folders,
        run=env[paths.RUN],
        engine=env.get(paths.ENGINE, "argo"),
        reuse=env.get(paths.REUSE, "none"),
        source=env.get(paths.SOURCE, "none"),
        simulator=env.get(SIMULATOR, ""),
        simulator_token=env.get(SIMULATOR_TOKEN, ""),
        simulator_pin=env.get(SIMULATOR_PIN, ""),
        git_root=Path(env[GIT_ROOT]) if env.get(GIT_ROOT) else None,
        namespace=env.get(paths.NAMESPACE, ""),
        seal_key=Path(env[SEAL_KEY]) if env.get(SEAL_KEY) else None,
    )
