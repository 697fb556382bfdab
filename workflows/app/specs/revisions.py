"""The Git commit of a spec's file, if it lies in a work tree: for the record of a run, never for its plan.

git refuses to read a work tree of another user, such as a CI job's tree read by root in a container, since its configuration may
name programs. `rev-parse` of names alone reads no object, no index and no file of the tree, starts no such program, and is allowed
there all the same. Commands that read objects could fetch missing ones by programs that the configuration names. They run in a
temporary repository with an empty configuration, which uses the objects of the other and nothing else.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from steps import timeouts
from steps.contract.runs import revision
from workflows.engines.folders import RunFolder

_ANOTHERS = "dubious ownership"
"""Part of git's message about a work tree of another user."""
_ALONE = {
    "GIT_ALLOW_PROTOCOL": "none",  # overrides protocol.*.allow of every configuration
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
}
"""Environment in which git fetches nothing, and reads no configuration except the repository's own."""
_SHA256_DIGITS = hashlib.sha256().digest_size * 2


def of(spec: Path) -> revision.SpecSource | None:
    """Return a spec file's commit, path in its work tree, and if it differs from the commit; None outside of Git or without git."""
    folder = spec.absolute().parent
    tree = top(folder)
    commit_state = None if tree is None else state(tree, [folder.resolve() / spec.name])
    if tree is None or commit_state is None:
        return None
    commit, dirty = commit_state
    return revision.SpecSource(commit=commit, path=os.path.relpath(spec.resolve(), tree), dirty=dirty)


def keep(folder: RunFolder, spec: str) -> None:
    """Write the spec's Git source beside a run's tasks, where the task `open` reads it.

    For an example or without Git, write nothing.
    """
    path = Path(spec)
    if path.is_file() and (git_source := of(path)) is not None:
        place = folder.inputs / "tasks" / revision.FILE
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(msgspec.json.encode(git_source))


def top(folder: Path) -> Path | None:
    """Return the root of the work tree that a folder lies in; None outside of Git, or without git."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    return Path(root).resolve() if root else None


def state(tree: Path, files: Iterable[Path]) -> tuple[str, bool] | None:
    """Return the commit of a work tree, and True if one of the files differs from it or is missing there; None without a commit."""
    commit = _git(tree, "rev-parse", "--verify", "HEAD")
    if not commit:
        return None
    return _compared(tree, commit, [os.path.relpath(path, tree) for path in files])


def _compared(tree: Path, commit: str, names: Sequence[str]) -> tuple[str, bool] | None:
    """Return the commit of a work tree, and True if a file differs from it; None if its objects cannot be read.

    Bytes are compared, because `git status` would run filters and hooks that the tree's configuration names. A file that only a
    filter makes equal (LFS) counts as different.
    """
    objects = _git(tree, "rev-parse", "--git-path", "objects")
    listed = _listed(tree / objects, commit, names) if objects else None
    if listed is None:
        return None
    rows = (row.partition("\t") for row in listed.split("\0") if row)
    committed = {name: facts.split()[2] for facts, _, name in rows}
    return commit, any(committed.get(name) != _blob(tree / name, len(commit)) for name in names)


def _listed(objects: Path, commit: str, names: Iterable[str]) -> str | None:
    """Return `git ls-tree` lines of these files from a temporary repository; None if objects or disk space are missing."""
    kind = "sha256" if len(commit) == _SHA256_DIGITS else "sha1"
    version = f"[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectformat = {kind}\n"
    question = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", *names)
    try:
        with tempfile.TemporaryDirectory(prefix="bringup-") as name:
            repository = Path(name)
            (repository / "refs").mkdir()
            (repository / "HEAD").write_text("ref: refs/heads/none\n")
            (repository / "config").write_text(version)
            code, stdout, _ = _asked(repository, *question, more=_ALONE | {"GIT_DIR": name, "GIT_OBJECT_DIRECTORY": str(objects)})
    except OSError:  # for instance in a container with read-only file systems
        return None
    return stdout if code == 0 else None


def _blob(path: Path, digits: int) -> str:
    """Return git's object id of a file's content, `digits` long (SHA-1 or SHA-256); empty if the file cannot be read."""
    try:
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    except OSError:
        return ""
    kind = hashlib.sha256 if digits == _SHA256_DIGITS else hashlib.sha1
    return kind(b"blob %d\0" % len(data) + data).hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    """Return git's standard output, or None if git fails, as it does if it might start a program of another user's work tree."""
    code, stdout, stderr = _asked(folder, *arguments)
    # names alone can be asked of another user's tree, since that starts no program
    if code and _ANOTHERS in stderr and arguments[0] == "rev-parse":
        code, stdout, _ = _asked(folder, "-c", "safe.directory=*", *arguments, more=_ALONE)
    return stdout.strip() if code == 0 else None


def _inherited() -> dict[str, str]:
    """Return this process's environment without variables of git.

    A hook of git runs with GIT_DIR and GIT_INDEX_FILE of its own repository, which would answer in the place of the spec's.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def _asked(folder: Path, *arguments: str, more: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            ["git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeouts.GIT,
            env={**_inherited(), "LC_ALL": "C", **(more or {})},
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1, "", ""
    return done.returncode, done.stdout, done.stderr
