"""Listing of a root file system: every path with its type, and the resolution of paths through symbolic links. Pure."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from msgspec import Struct

REGULAR, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
RUN_TIME: Final = ("proc", "sys", "dev", "run", "tmp")
"""Folders that are filled when the node runs; a link into them does not dangle."""
_MOST_LINKS: Final = 40
"""Most symbolic links that are followed on one path, as in the kernel: more of them are a loop."""


class RootEntry(Struct, frozen=True):
    """One file, folder or link of a root file system. `mode` has the permission, setuid, setgid and sticky bits.

    `link` is the target of a symbolic link; only files have a `size` in bytes.
    """

    kind: str
    mode: int = 0
    size: int = 0
    link: str = ""
    uid: int = 0
    gid: int = 0


class RootListing(Struct, frozen=True, dict=True):
    """Listing of a root file system, by path without leading slash; `texts` has the content of the few files that checks read.

    A further name of a file with several names has size 0.
    """

    entries: dict[str, RootEntry]
    texts: dict[str, str] = {}

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Path of each folder (`` for the root) → names of the files and folders in it."""
        children: dict[str, list[str]] = {}
        for path in self.entries:
            folder, _, name = path.rpartition("/")
            children.setdefault(folder, []).append(name)
        return children

    @property
    def size(self) -> int:
        """Sum of the sizes of all files, in bytes."""
        return sum(entry.size for entry in self.entries.values() if entry.kind == REGULAR)

    def below(self, folders: Iterable[str]) -> Iterator[tuple[str, RootEntry]]:
        """Yield path and entry of each folder and of everything below it, sorted by path. A folder that is a link is followed."""
        tops = [place for folder in folders if (place := self.resolve(folder)) is not None]
        for path in sorted(self.entries):
            if any(not top or path == top or path.startswith(f"{top}/") for top in tops):
                yield path, self.entries[path]

    def resolve(self, path: str) -> str | None:
        """Return the path that a path leads to through all its links, without leading slash; None if it leads nowhere.

        A path into a folder that is filled at run time (RUN_TIME) is returned although the listing lacks it.
        """
        return self._walk(plain_path(path).split("/"), last=True)

    def link_of(self, path: str) -> str:
        """Return the target of a symbolic link as it is written; empty if the path is no link."""
        place = self._walk(plain_path(path).split("/"), last=False)
        entry = self.entries.get(place or "")
        return entry.link if entry else ""

    def expand(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern, sorted and with a leading slash, dangling links too.

        `*` and `?` match within one name.
        """
        paths = [""]
        for name in plain_path(pattern).split("/"):
            paths = [path for folder in paths for path in self._matching(folder, name)]
        return [f"/{path}" for path in sorted(paths)]

    def _matching(self, folder: str, name: str) -> Iterator[str]:
        place = self._walk(folder.split("/") if folder else [], last=True)
        names = self.children.get(place, []) if place is not None else []
        if not any(sign in name for sign in "*?["):
            names = [name] if name in names else []
        special = {"*": "[^/]*", "?": "[^/]"}
        expression = "".join(special.get(sign) or re.escape(sign) for sign in name)
        yield from (posixpath.join(place or "", child) for child in names if re.fullmatch(expression, child))

    def _walk(self, names: list[str], *, last: bool) -> str | None:
        ahead, place, links = [name for name in reversed(names) if name], "", 0
        while ahead:
            name = ahead.pop()
            if name in (".", ".."):
                place = posixpath.dirname(place) if name == ".." else place
                continue
            place = posixpath.join(place, name)
            entry = self.entries.get(place)
            if entry is None:
                return posixpath.join(place, *reversed(ahead)) if place.split("/")[0] in RUN_TIME else None
            if entry.kind != LINK or (not ahead and not last):
                continue
            links += 1
            if links > _MOST_LINKS:
                return None
            place = "" if entry.link.startswith("/") else posixpath.dirname(place)
            ahead += [part for part in reversed(entry.link.split("/")) if part]
        return place


def plain_path(path: str) -> str:
    """Return a path in the listing's form: normalized, without leading or trailing slash."""
    return posixpath.normpath("/" + path).strip("/")
