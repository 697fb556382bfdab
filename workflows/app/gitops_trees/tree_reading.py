"""Read the text files of a folder, or of a commit of Git, within limits."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from steps import timeouts
from steps.clients import process, program_streams
from steps.errors import BadTask
from workflows.app.run_options import UsageError
from workflows.gitops_check.gitops_findings import GitopsFinding, finding

MOST_FILES = 20_000
"""Limit of files of a tree; repositories of whole platforms have a few thousand."""
LARGEST_FILE = 2 << 20
"""Limit of one file in bytes; bundles of CRDs reach 1.5 MiB."""
LARGEST_TREE = 128 << 20
"""Limit of all files together in bytes."""
_SKIPPED = frozenset({".git", ".venv", "node_modules", "__pycache__", ".terraform"})
"""Names of folders that hold nothing which Argo CD reads."""
_REVISION = re.compile(r"[A-Za-z0-9][\w./@^~{}-]{0,199}")
_ALONE = (
    *("GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_CONFIG_NOSYSTEM=1", f"GIT_CONFIG_GLOBAL={os.devnull}"),
    *("GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C"),
)
"""Environment in which git fetches nothing, and reads no configuration except the repository's own."""
_LINK = "120000"


@dataclass(frozen=True)
class ReadTree:
    """The texts of a tree by path, findings about files that were left out, and what the tree is called."""

    name: str
    files: Mapping[str, str]
    findings: tuple[GitopsFinding, ...] = ()


@dataclass
class _Reading:
    """Texts read so far, and the room that is left."""

    files: dict[str, str] = field(default_factory=dict)
    findings: list[GitopsFinding] = field(default_factory=list)
    room: int = LARGEST_TREE

    def refuse(self, path: str, problem: str, fix: str) -> None:
        """Note a file that is left out."""
        self.findings.append(finding("file-refused", (path, 0), problem, fix))

    def take(self, path: str, content: bytes) -> None:
        """Keep a file's text; a binary file stays with an empty text, so that its name is known. Raises UsageError."""
        self.room -= len(content)
        if self.room < 0 or len(self.files) >= MOST_FILES:
            raise UsageError(
                f"the tree has more than {MOST_FILES} files or {LARGEST_TREE >> 20} MiB: name the folder that Argo CD reads"
            )
        is_binary = b"\0" in content[:8192]
        self.files[path] = "" if is_binary else content.decode("utf-8-sig", errors="replace")


def read_folder(folder: Path) -> ReadTree:
    """Return the files below a folder. Links are followed only to files within it. Raises UsageError, OSError."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: name the checkout of the repository that Argo CD reads, or a folder of it")
    root, reading = folder.resolve(), _Reading()
    for path in _paths(root):
        name = path.relative_to(root).as_posix()
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            reading.refuse(name, "it is a link out of the folder, and is not followed", "put the file itself into the repository")
        elif path.is_symlink() and path.is_dir():
            reading.refuse(name, "it is a link to a folder, and is not followed", "name the folder itself where it is used")
        elif path.is_file():
            _read_file(reading, path, name)
        elif path.is_symlink():
            reading.refuse(name, "it is a link to nothing", "correct where it points, or remove it")
        else:
            reading.refuse(name, "it is no regular file, and is not read", "remove it: Git keeps no such file")
    return ReadTree(str(folder), reading.files, tuple(reading.findings))


def _paths(root: Path) -> Iterator[Path]:
    """Yield files and links below a folder, in order, without following links to folders."""
    for parent, folders, files in os.walk(root, followlinks=False):
        linked = [name for name in folders if Path(parent, name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and name not in linked)
        yield from (Path(parent, name) for name in sorted((*files, *linked)))


def _read_file(reading: _Reading, path: Path, name: str) -> None:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        reading.refuse(name, f"it has more than {LARGEST_FILE >> 20} MiB, and is not read", "split it, or keep it elsewhere")
        content = b""
    reading.take(name, content)


# ---- commits of Git -------------------------------------------------------------------------------------------------------------


def read_earlier(folder: Path, source: str) -> ReadTree:
    """Return another state of a folder: a second folder, or the same one at a revision of Git. Raises UsageError."""
    if Path(source).is_dir():
        return read_folder(Path(source))
    if not _REVISION.fullmatch(source) or source.startswith("-"):
        raise UsageError(f"--against {source}: expected a folder, or a revision of Git such as v1.4.0 or HEAD~1")
    names = ("--show-toplevel", "--git-common-dir")
    place = _git(folder, "rev-parse", *names)
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{source}^{{commit}}")
    if place is None or commit is None:
        what = f"there is no revision {source}" if place else "the folder is in no work tree of Git"
        raise UsageError(f"--against {source}: {what}; expected a folder, or a revision of the repository that holds {folder}")
    top, common = place.splitlines()[:2]
    below = os.path.relpath(folder.resolve(), Path(top).resolve())
    return _read_commit(Path(folder, common).resolve() / "objects", commit, "" if below == "." else f"{below}/", source)


def _alone() -> tuple[str, ...]:
    """Return words for `env` that leave git no variables of the caller: a hook's GIT_DIR would answer in the tree's place."""
    unset = (word for name in os.environ if name.startswith("GIT_") for word in ("-u", name))
    return (*unset, *_ALONE)


def _git(folder: Path, *arguments: str) -> str | None:
    # names alone are read, which starts no program that the configuration of the tree names
    settings = ("-c", "core.fsmonitor=false", "-c", "safe.directory=*")
    command = ("env", *_alone(), "git", "--no-pager", "--no-optional-locks", *settings, "-C", str(folder), *arguments)
    done = process.run(command, seconds=timeouts.GIT)
    return done.out.strip() if done.code == 0 else None


def _read_commit(objects: Path, commit: str, prefix: str, name: str) -> ReadTree:
    """Return the files of a commit below a folder. An empty repository that uses the other's objects reads them."""
    reading = _Reading()
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        repository = Path(folder)
        (repository / "refs").mkdir()
        (repository / "HEAD").write_text("ref: refs/heads/none\n")
        kind = "sha256" if len(commit) == 64 else "sha1"
        settings = f"[core]\nrepositoryformatversion = 1\nbare = true\n[extensions]\nobjectformat = {kind}\n"
        (repository / "config").write_text(settings)
        only = (f"GIT_DIR={folder}", f"GIT_OBJECT_DIRECTORY={objects}")
        git = ("env", *_alone(), *only, "git", "--no-pager", "--literal-pathspecs")
        listed = program_streams.through(
            (*git, "ls-tree", "-r", "-z", "--long", "--full-tree", commit, "--", prefix or "."), b"", timeouts.GIT
        )
        chosen = dict(_chosen(listed, prefix))
        if sum(size for _, size in chosen.values()) > LARGEST_TREE or len(chosen) > MOST_FILES:
            raise UsageError(
                f"{name} has more than {MOST_FILES} files or {LARGEST_TREE >> 20} MiB: name the folder that Argo CD reads"
            )
        query = "".join(f"{digest}\n" for digest, _ in chosen.values()).encode()
        answer = program_streams.through((*git, "cat-file", "--batch"), query, timeouts.GIT_READ)
    for path, content in zip(chosen, _contents(answer), strict=True):
        reading.take(path, content)
    return ReadTree(name, reading.files, tuple(reading.findings))


def _chosen(listed: bytes, prefix: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield path below the folder, digest and size of each file that is read."""
    for row in listed.decode(errors="replace").split("\0"):
        facts, _, path = row.partition("\t")
        if not path.startswith(prefix) or len(facts.split()) != 4:
            continue
        mode, kind, digest, size = facts.split()
        short = path.removeprefix(prefix)
        is_skipped = bool(_SKIPPED & set(PurePosixPath(short).parts))
        if kind != "blob" or mode == _LINK or is_skipped or int(size) > LARGEST_FILE:
            continue
        yield short, (digest, int(size))


def _contents(answer: bytes) -> Iterator[bytes]:
    """Yield the contents in the answer of `git cat-file --batch`. Raises BadTask for an object that is missing."""
    start = 0
    while start < len(answer):
        end = answer.index(b"\n", start)
        facts = answer[start:end].split()
        if len(facts) != 3:
            raise BadTask("Git lacks objects of that revision", hint="fetch them: git fetch --unshallow, without a filter")
        size = int(facts[2])
        yield answer[end + 1 : end + 1 + size]
        start = end + 1 + size + 1
