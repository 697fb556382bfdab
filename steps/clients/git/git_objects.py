"""Objects of a Git repository: a bare repository with a limit on what is fetched, and the entries in the trees of a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from steps.errors import BadTask

if TYPE_CHECKING:
    from dulwich.object_store import BaseObjectStore
    from dulwich.objects import ObjectID
    from dulwich.repo import Repo

_KIND, _FILE, _FOLDER, _SUBMODULE = 0o170000, 0o100000, 0o040000, 0o160000


class GitEntry(Struct, frozen=True, kw_only=True):
    """A file, link or folder of a commit: path from its root, mode as in Git, and content (of a link: its target)."""

    path: str
    mode: int
    content: bytes

    @property
    def is_file(self) -> bool:
        """Return True if the entry is a file, not a link or a folder."""
        return self.mode & _KIND == _FILE

    @property
    def is_folder(self) -> bool:
        """Return True if the entry is a folder; its content follows."""
        return self.mode & _KIND == _FOLDER


def below(store: BaseObjectStore, tree: ObjectID, folder: str) -> Iterator[GitEntry]:
    """Yield the entries below a folder of a tree, without submodules; nothing if there is no such folder.

    Raises KeyError for a missing object.
    """
    from dulwich.object_store import iter_tree_contents

    prefix = f"{folder}/".encode() if folder else b""
    for entry in iter_tree_contents(store, _tree(store, tree, folder), include_trees=True):
        kind = entry.mode & _KIND
        if entry.path and kind != _SUBMODULE:
            content = b"" if kind == _FOLDER else bytes(store[entry.sha].as_raw_string())
            yield GitEntry(path=(prefix + entry.path).decode(errors="surrogateescape"), mode=entry.mode, content=content)


def _tree(store: BaseObjectStore, tree: ObjectID, folder: str) -> ObjectID | None:
    """Return the id of the Git tree of a folder; None if there is no such folder."""
    from dulwich.objects import Tree

    for part in folder.encode().split(b"/") if folder else ():
        here = store[tree]
        if not isinstance(here, Tree) or part not in here or here[part][0] & _KIND != _FOLDER:
            return None
        tree = here[part][1]
    return tree


def create_bare(folder: Path, most_bytes: int | None = None) -> Repo:
    """Return a new repository in a folder that does not exist yet.

    A fetch raises BadTask as soon as its pack has more than `most_bytes`, before it fills the disk or is unpacked.
    """
    from dulwich.object_store import DiskObjectStore
    from dulwich.repo import Repo

    class Bounded(DiskObjectStore):
        def add_pack(self) -> tuple[Any, Callable[[], Any], Callable[[], None]]:
            file, commit, abort = super().add_pack()
            return file if most_bytes is None else _Counted(file, most_bytes), commit, abort

    folder.mkdir(parents=True)
    Repo.init_bare(str(folder)).close()
    return Repo(str(folder), object_store=Bounded(str(folder / "objects")), bare=True)


class _Counted:
    """A file that accepts a limited number of bytes and raises BadTask for more."""

    def __init__(self, file: Any, most: int) -> None:
        self._file = file
        self._most = self._left = most

    def write(self, some: bytes) -> int:
        self._left -= len(some)
        if self._left < 0:
            raise BadTask(
                f"the newest commit of the repository has more than {self._most / (1 << 20):g} MiB, all of its folders together",
                hint="keep the spec, its recipes and their files in a repository of their own",
            )
        return int(self._file.write(some))
