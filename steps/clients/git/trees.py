"""What the trees of a commit hold, one entry after the other, as far as the objects are here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from dulwich.object_store import BaseObjectStore
    from dulwich.objects import ObjectID

_KIND, _FILE, _FOLDER, _SUBMODULE = 0o170000, 0o100000, 0o040000, 0o160000


class Entry(Struct, frozen=True, kw_only=True):
    """A file, a link or a folder of a commit: path from its root, mode as Git has it, bytes (of a link: where it leads)."""

    path: str
    mode: int
    content: bytes

    @property
    def is_file(self) -> bool:
        """Whether it is a file, and not a link or a folder."""
        return self.mode & _KIND == _FILE

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, whose entries come after it."""
        return self.mode & _KIND == _FOLDER


def below(store: BaseObjectStore, tree: ObjectID, folder: str) -> Iterator[Entry]:
    """All below a folder of a tree, submodules left out; nothing where there is none. Raises KeyError for a missing object."""
    from dulwich.object_store import iter_tree_contents

    prefix = f"{folder}/".encode() if folder else b""
    for found in iter_tree_contents(store, _tree(store, tree, folder), include_trees=True):
        kind = found.mode & _KIND
        if found.path and kind != _SUBMODULE:
            content = b"" if kind == _FOLDER else bytes(store[found.sha].as_raw_string())
            yield Entry(path=(prefix + found.path).decode(errors="surrogateescape"), mode=found.mode, content=content)


def _tree(store: BaseObjectStore, tree: ObjectID, folder: str) -> ObjectID | None:
    """The tree of a folder; None where there is none of that name."""
    from dulwich.objects import Tree

    for part in folder.encode().split(b"/") if folder else ():
        here = store[tree]
        if not isinstance(here, Tree) or part not in here or here[part][0] & _KIND != _FOLDER:
            return None
        tree = here[part][1]
    return tree
