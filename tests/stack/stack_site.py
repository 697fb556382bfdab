"""A user's folder with a stack spec and easyconfigs, a home for runs, and the command `bringup stack`.

Sites share the folder that they publish to, because packages have its path in their binaries, and so one build cache serves all.
Each site has a stack of its own name there. A site that spoils the cache takes a copy of it.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.stack import debian_sources

BRINGUP = Path(sys.executable).with_name("bringup")
SECONDS = 900
EASYCONFIGS = Path(__file__).with_name("easyconfigs")
TOOLCHAIN = ("GCC", "OpenMPI", "gompi")
"""Packages of the operating system: their easyconfigs make modules, and no files."""
EASYBUILD = "5.4.1"
TESTS = [
    {"name": "mpi_sum", "modules": ["gompi", "mpisum"], "command": ["mpirun", "-n", "2", "mpisum"], "timeout": "60s"},
    {"name": "qr_code", "modules": ["GCC", "qrencode"], "command": ["qrencode", "-o", "/dev/null", "a stack"], "timeout": "60s"},
]

REFRAME = """
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class RanksAgree(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    modules = ["gompi", "mpisum"]
    executable = "mpisum"
    num_tasks = 2

    @sanity_function
    def agree(self):
        return sn.assert_found(r"^2 ranks agree", self.stdout)
"""
"""A test of ReFrame, as a site writes it."""


class Site:
    """Everything of one stack below one folder; `root` is the folder that stacks are published to, `cache` the build cache."""

    def __init__(self, folder: Path, root: Path, cache: Path, name: str, **more: Any) -> None:
        self.folder, self.root, self.cache, self.name = folder, root, cache, name
        self.home = folder / "home"
        self.easyconfigs = folder / "easyconfigs"
        for made in (self.home, root, cache):
            made.mkdir(parents=True, exist_ok=True)
        shutil.copytree(EASYCONFIGS, self.easyconfigs)
        self.environment = {**os.environ, "BRINGUP_HOME": str(self.home)}
        self.within: tuple[str, ...] = ()
        """Words before all commands, such as those that give them a small disk."""
        self.write(**more)

    def write(self, **more: Any) -> None:
        """Write the spec; `more` replaces its keys."""
        roots = sorted(path.name for path in self.easyconfigs.iterdir() if not path.name.startswith(TOOLCHAIN))
        spec: dict[str, Any] = {
            "apiVersion": "bringup/v1",
            "kind": "Stack",
            "name": self.name,
            "owner": "hpc@example.org",
            "revision": "1",
            "easybuild": {"release": EASYBUILD, "easyconfigs": [f"easyconfigs/{name}" for name in roots]},
            "builder": "registry.example.org/builder:2026.11",
            "target": "x86_64",
            "jobs": 2,
            "builds_at_once": 2,
            "cache": str(self.cache),
            "sources": [str(debian_sources.folder()), str(debian_sources.OWN)],
            "tests": TESTS,
            "publish": {"root": str(self.root), "keep": 3},
        }
        (self.folder / "stack.yaml").write_text(
            yaml.safe_dump({key: value for key, value in (spec | more).items() if value is not None})
        )

    def keep_only(self, *names: str) -> None:
        """Remove the easyconfigs of all packages but these and the toolchain, before the spec is written anew."""
        for path in self.easyconfigs.iterdir():
            if not path.name.startswith((*TOOLCHAIN, *(f"{name}-" for name in names))):
                path.unlink()

    def change(self, name: str, old: str = "", new: str = "") -> None:
        """Replace a text in the easyconfig of a package; without one, add a line, by default the site's own."""
        path, new = self.easyconfig(name), new or f"# {self.name}\n" * (not old)
        text = path.read_text()
        assert old in text, f"{path.name} has no {old!r}"
        path.write_text(text.replace(old, new) if old else text + new)

    def easyconfig(self, name: str) -> Path:
        """Return the easyconfig of a package."""
        (path,) = self.easyconfigs.glob(f"{name}-*.eb")
        return path

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command of `bringup stack`, which must end with exit code `code`, and return its output."""
        command = [*self.within, str(BRINGUP), "stack", *words]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of bringup in the background, in a process group of its own; what it prints is added to `log`."""
        with self.log.open("a") as stream:
            return subprocess.Popen(
                [BRINGUP, *words],
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=stream,
                text=True,
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        """Return the file with what commands in the background printed."""
        return self.folder / "background.log"

    @property
    def runs(self) -> list[str]:
        """Return the names of runs, the newest last."""
        folder = self.home / "store/runs"
        return sorted((path.name for path in folder.iterdir()), key=lambda name: (folder / name).stat().st_mtime_ns)

    def records(self, stage: str, task: str) -> list[dict[str, Any]]:
        """Return the records of a task in the newest run."""
        records = (self.home / "store/runs" / self.runs[-1] / "evidence" / stage / task).rglob("*.json")
        return [json.loads(path.read_text()) for path in sorted(records)]

    def report(self) -> dict[str, Any]:
        """Return the report of the newest run as data."""
        data: dict[str, Any] = json.loads((self.home / "store/runs" / self.runs[-1] / "report/report.json").read_text())
        return data

    def built(self) -> dict[str, dict[str, Any]]:
        """Return the results of packages in the newest run, by name and version."""
        packages = [package for record in self.records("stack_build", "package") for package in record["observation"]["packages"]]
        return {package["title"]: package for package in packages}

    @property
    def published(self) -> Path:
        """Return the folder of the stack in the publish root."""
        return self.root / self.name

    @property
    def current(self) -> str:
        """Return the current version; empty before the first publication."""
        pointer = self.published / "current"
        return os.readlink(pointer).rpartition("/")[2] if pointer.is_symlink() else ""

    def loaded(self, *words: str, modules: tuple[str, ...], folder: str = "all/Core") -> subprocess.CompletedProcess[str]:
        """Run a program with modules of the published stack as a user does: by Lmod, with an empty environment."""
        use = f"source /usr/share/lmod/lmod/init/bash && module use {self.published}/current/modules/{folder}"
        script = f'{use} && module load {" ".join(modules)} && exec "$@"'
        command = ["bash", "-c", script, "bash", *words]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        return subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, timeout=SECONDS)


def written(folder: Path) -> dict[str, tuple[int, int]]:
    """Return every path below a folder with its times, so that no write goes unnoticed."""
    paths = [Path(at) / name for at, folders, files in os.walk(folder) for name in (*folders, *files)]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in (folder, *paths)}
