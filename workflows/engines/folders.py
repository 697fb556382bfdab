"""Where runs of this machine lie: the store, and beside it what an engine needs to execute one run."""

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "BRINGUP_HOME"


class NoSuchRun(ValueError):
    """No run of that name; the message lists some that there are."""

    hint = (
        "a run on Argo that this machine does not know is found with --engine argo [--namespace N]; "
        "start one with `bringup rehearse` or `bringup run`; BRINGUP_HOME says where runs lie"
    )


class NoHome(ValueError):
    """The environment names no folder for runs."""

    hint = f"set {HOME_VARIABLE} to a folder on a local disk"


@dataclass(frozen=True)
class Home:
    """The folder that holds all runs of this machine; `$BRINGUP_HOME`, else `~/.local/state/bringup`."""

    root: Path

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> "Home":
        """The home that the environment names. Raises NoHome where it names none: runs must not land somewhere by chance."""
        env = os.environ if environ is None else environ
        if env.get(HOME_VARIABLE):
            return cls(Path(env[HOME_VARIABLE]).absolute())
        if env.get("XDG_STATE_HOME"):
            return cls(Path(env["XDG_STATE_HOME"]).absolute() / "bringup")
        if not env.get("HOME"):
            raise NoHome(f"neither {HOME_VARIABLE} nor HOME is set, so there is no folder for runs")
        return cls(Path(env["HOME"]).absolute() / ".local/state/bringup")

    @property
    def store(self) -> Path:
        """The run store: evidence, reports, seals of all runs."""
        return self.root / "store"

    def run(self, name: str) -> "RunFolder":
        """The folders of one run, whether it exists or not."""
        return RunFolder(self, name)

    def runs(self) -> tuple[str, ...]:
        """Names of all runs, the newest last."""
        folder = self.root / "engine"
        found = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
        return tuple(path.name for path in sorted(found, key=lambda path: (path.stat().st_mtime, path.name)))

    def find(self, name: str) -> "RunFolder":
        """An existing run; an empty name or `last` means the newest. Raises NoSuchRun."""
        every = self.runs()
        if name in ("", "last") and every:
            return self.run(every[-1])
        if name in every:
            return self.run(name)
        if not every:
            raise NoSuchRun(f"{f'no run {name!r}: ' if name else ''}there are no runs in {self.root}")
        raise NoSuchRun(f"no run {name!r}; runs here: {', '.join(every[-5:])}")


@dataclass(frozen=True)
class RunFolder:
    """The folders of one run: `engine` (journal, inbox, logs), `inputs` (tasks, fleet, secrets) and its part of the store."""

    home: Home
    name: str

    @property
    def engine(self) -> Path:
        """The engine's own folder; on a local disk."""
        return self.home.root / "engine" / self.name

    @property
    def inputs(self) -> Path:
        """What the run was told: tasks, fleet, secrets, and the manifest."""
        return self.home.root / "inputs" / self.name

    @property
    def stored(self) -> Path:
        """Evidence, report and seal."""
        return self.home.store / "runs" / self.name


def places(folder: RunFolder) -> list[str]:
    """Lines that say where report and evidence of a run lie, as far as they were written."""
    known = (("report", folder.stored / "report/report.html"), ("evidence", folder.stored))
    return [f"{name:<8} {path}" for name, path in known if path.exists()]


def new_run_name(cluster: str) -> str:
    """A name for a new run: cluster, UTC time, and four random digits, as in `h200-16-20261121-101500-3f2a`."""
    return f"{cluster}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
