"""Folders of this machine's runs: the run store, and beside it the files that the local engine needs for each run."""

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "BRINGUP_HOME"


class NoSuchRun(ValueError):
    """Exception: no run of this machine has that name; the message lists some that exist."""

    hint = (
        "a run on Argo that this machine does not know is found with --engine argo [--namespace N]; "
        "start one with `bringup rehearse` or `bringup run`; BRINGUP_HOME names the folder of the runs"
    )


class NoStateFolder(ValueError):
    """Exception: no environment variable names a usable folder for the runs."""

    hint = f"set {HOME_VARIABLE} to a folder on a local disk"


@dataclass(frozen=True)
class StateFolder:
    """The folder with all runs of this machine: `$BRINGUP_HOME`, else `$XDG_STATE_HOME/bringup`, else `~/.local/state/bringup`."""

    root: Path

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> "StateFolder":
        """Return the folder that the environment names. Raises NoStateFolder if it names none: runs must not land just anywhere."""
        env = os.environ if environ is None else environ
        if env.get(HOME_VARIABLE):
            root = Path(env[HOME_VARIABLE]).absolute()
            if root.exists() and not root.is_dir():
                raise NoStateFolder(f"{HOME_VARIABLE} names {root}, which is no folder")
            return cls(root)
        if env.get("XDG_STATE_HOME"):
            return cls(Path(env["XDG_STATE_HOME"]).absolute() / "bringup")
        if not env.get("HOME"):
            raise NoStateFolder(f"neither {HOME_VARIABLE} nor HOME is set, so there is no folder for runs")
        return cls(Path(env["HOME"]).absolute() / ".local/state/bringup")

    @property
    def store(self) -> Path:
        """Return the path of the run store, which holds evidence, reports and seals of all runs."""
        return self.root / "store"

    def run(self, name: str) -> "RunFolder":
        """Return the folders of the run with this name, whether or not they exist."""
        return RunFolder(self, name)

    def runs(self) -> tuple[str, ...]:
        """Return the names of all runs of this machine, the newest last."""
        folder = self.root / "engine"
        folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        return tuple(path.name for path in sorted(folders, key=lambda path: (path.stat().st_mtime, path.name)))

    def find(self, name: str) -> "RunFolder":
        """Return the folders of an existing run; the name "" or `last` means the newest run. Raises NoSuchRun."""
        every = self.runs()
        if name in ("", "last") and every:
            # a folder that somebody else put there must not pass for the newest run
            begun = [run for run in every if self.run(run).is_begun]
            return self.run((begun or every)[-1])
        if name in every:
            return self.run(name)
        if not every:
            raise NoSuchRun(f"{f'no run {name!r}: ' if name else ''}there are no runs in {self.root}")
        raise NoSuchRun(f"no run {name!r}; runs here: {', '.join(every[-5:])}")


@dataclass(frozen=True)
class RunFolder:
    """The folders of one run on this machine: `engine` (journal, inbox, logs), `inputs` (tasks, fleet, secrets), and `stored`."""

    home: StateFolder
    name: str

    @property
    def engine(self) -> Path:
        """Return the folder in which the engine keeps journal, inbox and logs of the run; it must lie on a local disk."""
        return self.home.root / "engine" / self.name

    @property
    def is_begun(self) -> bool:
        """Return True if an engine has left anything in the run's folder: a journal, or what is remembered of a run on Argo."""
        return next(self.engine.iterdir(), None) is not None

    @property
    def inputs(self) -> Path:
        """Return the folder with the files that the run reads: tasks, fleet, secrets, and the manifest."""
        return self.home.root / "inputs" / self.name

    @property
    def stored(self) -> Path:
        """Return the run's folder in the run store, with its evidence, report and seal."""
        return self.home.store / "runs" / self.name


def result_paths(folder: RunFolder) -> list[str]:
    """Return a line with the path for each of a run's report and evidence that exists."""
    known = (("report", folder.stored / "report/report.html"), ("evidence", folder.stored))
    return [f"{name:<8} {path}" for name, path in known if path.exists()]


LONGEST_RUN_NAME = 63
"""Largest number of characters in a run's name: Argo copies the name into a label of every pod."""


def new_run_name(cluster: str, pipeline: str = "") -> str:
    """Return a name for a new run: cluster, UTC time and four random hex digits, as in `h200-16-20261121-101500-3f2a`.

    The name begins with the pipeline if one is given, because all pipelines share a namespace of Argo; a long cluster name is cut.
    """
    suffix = f"-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    start = f"{pipeline}-{cluster}" if pipeline else cluster
    return f"{start[: LONGEST_RUN_NAME - len(suffix)].rstrip('-')}{suffix}"
