"""Settings that the journal of a run stores, the folders that replace `/bringup/...`, and the environment of steps."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from workflows.render.grammar.gotext import fnv1a

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NETWORK_VARIABLES = (*_PROXIES, *(name.upper() for name in _PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables with the proxies and CA files by which this machine reaches mirrors, Git servers and webhooks.

Requests to a Kubernetes API use no proxy. Plays and layer builds have environments of their own.
"""
BUILD_TOOLS = ("EB_PYTHON", "LMOD_CMD", "LMOD_PKG", "SPACK_PYTHON")
"""Environment variables by which sites name the interpreters of EasyBuild and Spack, and Lmod's programs."""
INHERITED = ("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SSH_AUTH_SOCK", *BUILD_TOOLS, *NETWORK_VARIABLES)


def default_environment() -> dict[str, str]:
    """Return the environment that steps get by default: this interpreter first on PATH, and a few harmless variables.

    A login inside a proxy's URL is the only secret that can be among them.
    """
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    inherited["PYTHONUTF8"] = "1"  # tasks and evidence are UTF-8, whatever the locale says
    return {**inherited, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


class RunSettings(msgspec.Struct, frozen=True):
    """The settings that a run was started with, as the journal stores them for `resume`.

    The steps' environment is left out, because it may hold secrets.
    """

    manifest: dict[str, Any]
    templates: dict[str, dict[str, Any]]
    paths: tuple[str, str, str, str]
    private_tmp: bool
    parallelism: int
    grace: float
    token: str

    def run_paths(self) -> RunPaths:
        """Return the paths of the run's folders."""
        tasks, fleet, secret, store = (Path(path) for path in self.paths)
        return RunPaths(tasks, fleet, secret, store, self.private_tmp)


# a part of a longer path (/x/bringup/tasks) or of a longer name (/bringup/tasks-old) is not replaced
_HOUSE = re.compile(r"(?<![\w./-])/bringup/(tasks|fleet|secrets|store|out)(?![\w-])")
_FOREIGN = re.compile(r"(?<![\w./-])/tmp(?=/)")


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The folders on this machine that replace `/bringup/tasks`, `/bringup/fleet` and so on in commands.

    `private_tmp` also replaces `/tmp/` by the attempt's own folder; it is used for manifests that bringup did not render.
    """

    tasks: Path
    fleet: Path
    secrets: Path
    store: Path
    private_tmp: bool = False

    @classmethod
    def below(cls, run_dir: Path, *, private_tmp: bool = False) -> RunPaths:
        """Return a run's folders as subfolders of its run directory."""
        return cls(run_dir / "tasks", run_dir / "fleet", run_dir / "secrets", run_dir / "store", private_tmp)

    def make(self) -> None:
        """Create the folders that are missing; `secrets` is accessible to its owner only."""
        for folder in (self.tasks, self.fleet, self.store):
            folder.mkdir(parents=True, exist_ok=True)
        self.secrets.mkdir(parents=True, exist_ok=True, mode=0o700)

    def rewrite(self, text: str, out: Path) -> str:
        """Return the text with every `/bringup/FOLDER` replaced by the real folder; `out` is the attempt's own folder."""
        folders = {"tasks": self.tasks, "fleet": self.fleet, "secrets": self.secrets, "store": self.store, "out": out}
        if not self.private_tmp:
            return _HOUSE.sub(lambda match: str(folders[match[1]]), text)
        return re.sub(f"{_HOUSE.pattern}|{_FOREIGN.pattern}", lambda match: str(folders[match[1]]) if match[1] else str(out), text)


def slug(path: str) -> str:
    """Return a file name for a node's path: readable, without separators, and unique by a hash."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", ".", path).strip(".")[-80:]
    return f"{readable}-{fnv1a(path):08x}"
