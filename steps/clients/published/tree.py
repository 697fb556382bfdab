"""A published tree as it was found at one moment, and nothing but data: paths are relative to its root."""

import stat

from msgspec import Struct

from steps.contract.image import published

MOST_BYTES = 4 << 20
"""Larger files are not read whole: no script, manifest or history is."""
MOST_NODES, MOST_REPORT = 100_000, 4096
"""Reports of nodes that are read, and bytes of each: whoever can write one must not fill a reader's memory."""
READ = (".json", ".jsonl", published.SCRIPT, ".sig", f"/{published.SUMS}")
"""Ends of the names of files that are read whole."""
ALL = "all"
"""For digests: of every version."""


class Entry(Struct, frozen=True):
    """A file, folder, link or something else; `names` is how many names its bytes have, `target` where a link leads."""

    mode: int
    size: int
    modified: int
    names: int
    target: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is an ordinary file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder, and no link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)


class Tree(Struct, kw_only=True):
    """What one look found of an image: all entries of it, of the boot scripts and of the root itself; bytes of small files; digests
    of the versions that were asked for; reports of nodes by file name, and when each was written (UTC seconds, by the clock of the
    machine that keeps the tree); the names of all images; folders that a publication writes into and that this user may not."""

    root: str
    image: str
    entries: dict[str, Entry] = {}
    contents: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    nodes: dict[str, bytes] = {}
    told: dict[str, int] = {}
    images: tuple[str, ...] = ()
    unwritable: tuple[str, ...] = ()

    def path(self, *parts: str) -> str:
        """A path below the image's own folder."""
        return "/".join((self.image, *parts))

    def below(self, folder: str) -> dict[str, Entry]:
        """Entries below a folder, by their path from there."""
        start = folder.rstrip("/") + "/"
        return {path.removeprefix(start): entry for path, entry in self.entries.items() if path.startswith(start)}

    def names(self, folder: str) -> tuple[str, ...]:
        """Names right in a folder."""
        return tuple(sorted(path for path in self.below(folder) if "/" not in path))

    @property
    def versions(self) -> tuple[str, ...]:
        """Names of versions, the oldest first; what else lies there is not one."""
        found = [name for name in self.names(self.path(published.VERSIONS)) if published.number_of(name) >= 0]
        folders = [name for name in found if self.entries[self.path(published.VERSIONS, name)].is_folder]
        return tuple(sorted(folders, key=lambda name: (published.number_of(name), name)))

    @property
    def current(self) -> str:
        """The version that the pointer names; empty where there is no pointer, or it names something else than a version."""
        entry = self.entries.get(self.path(published.CURRENT))
        folder, _, name = (entry.target if entry and entry.is_link else "").partition("/")
        return name if folder == published.VERSIONS and published.number_of(name) >= 0 else ""
