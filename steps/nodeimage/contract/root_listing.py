"""Listing of a root: every path with its kind, and the resolution of paths through links. Pure."""

import posixpath
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from msgspec import Struct

REGULAR, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
RUN_TIME: Final = ("proc", "sys", "dev", "run", "tmp")
"""Folders that are filled when the node runs: a link into them is not dangling."""
_MOST_LINKS: Final = 40
"""Most links on one path, as in the kernel: more of them are a loop."""


class RootEntry(Struct, frozen=True):
    """One path. `mode` has the permission bits with setuid, setgid and sticky; `link` is the target of a symbolic link."""

    kind: str
    mode: int = 0
    size: int = 0
    link: str = ""
    uid: int = 0
    gid: int = 0


class RootListing(Struct, frozen=True, dict=True):
    """Listing of a root, by path without leading slash; `texts` has the few files that checks read.

    A second name of the same file has size 0.
    """

    entries: dict[str, RootEntry]
    texts: dict[str, str] = {}

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """Names in each folder."""
        children: dict[str, list[str]] = {}
        for path in self.entries:
            folder, _, name = path.rpartition("/")
            children.setdefault(folder, []).append(name)
        return children

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries.values() if entry.kind == REGULAR)

    def below(self, folders: Iterable[str]) -> Iterator[tuple[str, RootEntry]]:
        """Return all paths below some folders, sorted; a folder that is a link is followed."""
        tops = [place for folder in folders if (place := self.resolve(folder)) is not None]
        for path in sorted(self.entries):
            if any(not top or path == top or path.startswith(f"{top}/") for top in tops):
                yield path, self.entries[path]

    def resolve(self, path: str) -> str | None:
        """Return where a path leads through all its links; None if it leads nowhere.

        A path into a folder that is filled at run time leads there.
        """
        return self._walk(plain_path(path).split("/"), last=True)

    def link_of(self, path: str) -> str:
        """Return the target of a symbolic link; empty if the path is none."""
        place = self._walk(plain_path(path).split("/"), last=False)
        entry = self.entries.get(place or "")
        return entry.link if entry else ""

    def expand(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern (`*` and `?` within one name), each with a leading slash; dangling links too."""
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
    """Return a path in the form that the listing uses."""
    return posixpath.normpath("/" + path).strip("/")
