"""The Git commit of a spec's file, where it lies in a work tree: for the record of a run, never for its plan."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from steps import timeouts
from steps.contract import revision
from workflows.engines.folders import RunFolder


def of(spec: Path) -> revision.Source | None:
    """Commit, path in the work tree and whether the file differs from the commit; None outside of Git, or without git."""
    folder = spec.absolute().parent
    tree = top(folder)
    found = None if tree is None else state(tree, [folder.resolve() / spec.name])
    if tree is None or found is None:
        return None
    commit, dirty = found
    return revision.Source(commit=commit, path=os.path.relpath(spec.resolve(), tree), dirty=dirty)


def keep(folder: RunFolder, spec: str) -> None:
    """Lay it beside the run's tasks, where `open` finds it; nothing where there is none, or where the spec is an example."""
    path = Path(spec)
    if path.is_file() and (found := of(path)) is not None:
        place = folder.inputs / "tasks" / revision.FILE
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(msgspec.json.encode(found))


def top(folder: Path) -> Path | None:
    """The work tree that a folder lies in; None outside of Git, or without git."""
    found = _git(folder, "rev-parse", "--show-toplevel")
    return Path(found).resolve() if found else None


def state(tree: Path, files: Iterable[Path]) -> tuple[str, bool] | None:
    """The commit of a work tree, and whether one of these files differs from it or is not in it; None without a commit."""
    commit = _git(tree, "rev-parse", "--verify", "HEAD")
    names = [os.path.relpath(path, tree) for path in files]
    changed = _git(tree, "--literal-pathspecs", "status", "--porcelain", "--ignored", "--untracked-files=all", "--", *names)
    if not commit or changed is None:
        return None
    return commit, bool(changed)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None where it cannot."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder, *arguments],
            capture_output=True,
            text=True,
            timeout=timeouts.GIT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
