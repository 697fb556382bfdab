"""Entries in the trees of a commit, as far as the objects are here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from dulwich.object_store import BaseObjectStore
    from dulwich.objects import ObjectID

_KIND, _FILE, _FOLDER, _SUBMODULE = 0o170000, 0o100000, 0o040000, 0o160000


class Entry(Struct, frozen=True, kw_only=True):
    """A file, link or folder of a commit: path from its root, mode as in Git, content (of a link: its target)."""

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


def below(store: BaseObjectStore, tree: ObjectID, folder: str) -> Iterator[Entry]:
    """Yield the entries below a folder of a tree without submodules; nothing if there is no such folder. Raises KeyError for a
    missing object.
    """
    from dulwich.object_store import iter_tree_contents

    prefix = f"{folder}/".encode() if folder else b""
    for entry in iter_tree_contents(store, _tree(store, tree, folder), include_trees=True):
        kind = entry.mode & _KIND
        if entry.path and kind != _SUBMODULE:
            content = b"" if kind == _FOLDER else bytes(store[entry.sha].as_raw_string())
            yield Entry(path=(prefix + entry.path).decode(errors="surrogateescape"), mode=entry.mode, content=content)


def _tree(store: BaseObjectStore, tree: ObjectID, folder: str) -> ObjectID | None:
    """Return the tree of a folder; None if there is no such folder."""
    from dulwich.objects import Tree

    for part in folder.encode().split(b"/") if folder else ():
        here = store[tree]
        if not isinstance(here, Tree) or part not in here or here[part][0] & _KIND != _FOLDER:
            return None
        tree = here[part][1]
    return tree
