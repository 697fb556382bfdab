"""The Git commit of a spec's file, where it lies in a work tree: for the record of a run, never for its plan.

git reads no work tree of another user, as root in a container has one of the CI job's: its configuration may name programs.
`rev-parse` of names alone reads no object, no index and no file of the tree, so it starts none of them, and is asked there all the
same. What reads objects would fetch those that are missing, by programs that the configuration names: it is asked in a repository
of our own with an empty configuration, which has the objects of the other, and nothing else of it.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from steps import timeouts
from steps.contract import revision
from workflows.engines.folders import RunFolder

_ANOTHERS = "dubious ownership"
"""In what git says of such a work tree."""
_ALONE = {
    "GIT_ALLOW_PROTOCOL": "none",  # the environment wins over protocol.*.allow of every configuration
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_NO_REPLACE_OBJECTS": "1",
}
"""Nothing is fetched, and nobody's configuration adds to that of the repository."""
_SHA256_DIGITS = hashlib.sha256().digest_size * 2


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
    if changed is None and commit:
        return _state_of_anothers(tree, commit, names)
    if not commit or changed is None:
        return None
    return commit, bool(changed)


def _state_of_anothers(tree: Path, commit: str, names: Iterable[str]) -> tuple[str, bool] | None:
    """The same by the bytes of the files: `status` would have them read by the filters that the tree's configuration names. A file
    that only a filter makes equal (LFS) counts as one that differs."""
    wanted = list(names)
    objects = _git(tree, "rev-parse", "--git-path", "objects")
    listed = _listed(tree / objects, commit, wanted) if objects else None
    if listed is None:
        return None
    rows = (row.partition("\t") for row in listed.split("\0") if row)
    there = {name: facts.split()[2] for facts, _, name in rows}
    return commit, any(there.get(name) != _blob(tree / name, len(commit)) for name in wanted)


def _listed(objects: Path, commit: str, names: Iterable[str]) -> str | None:
    """What a commit has of these files, by a repository that is made for the question; None where objects are missing, or there is
    no room for it."""
    kind = "sha256" if len(commit) == _SHA256_DIGITS else "sha1"
    version = f"[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectformat = {kind}\n"
    question = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", commit, "--", *names)
    try:
        with tempfile.TemporaryDirectory(prefix="bringup-") as name:
            own = Path(name)
            (own / "refs").mkdir()
            (own / "HEAD").write_text("ref: refs/heads/none\n")
            (own / "config").write_text(version)
            code, said, _ = _asked(own, *question, more=_ALONE | {"GIT_DIR": name, "GIT_OBJECT_DIRECTORY": str(objects)})
    except OSError:  # a container whose file systems are read-only
        return None
    return said if code == 0 else None


def _blob(path: Path, digits: int) -> str:
    """What git calls the content of a file, in a repository whose names have so many digits; empty where it is none."""
    try:
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    except OSError:
        return ""
    kind = hashlib.sha256 if digits == _SHA256_DIGITS else hashlib.sha1
    return kind(b"blob %d\0" % len(data) + data).hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None where it cannot, and for a work tree of another user where the command might start a program."""
    code, said, why = _asked(folder, *arguments)
    if code and _ANOTHERS in why and arguments[0] == "rev-parse":
        code, said, _ = _asked(folder, "-c", "safe.directory=*", *arguments, more=_ALONE)
    return said.strip() if code == 0 else None


def _asked(folder: Path, *arguments: str, more: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            ["git", "--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", folder, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeouts.GIT,
            env={**os.environ, "LC_ALL": "C", **(more or {})},
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1, "", ""
    return done.returncode, done.stdout, done.stderr
