"""A release tree (published release folder) as it was read at one moment: nothing but data. Paths are relative to its root."""

import stat

from msgspec import Struct

from steps.contract import release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.release_layout import ReleaseError, Switch

MOST_BYTES = 4 << 20
"""Size in bytes above which a file's content is not kept. No manifest, history or script is larger."""
MOST_NODES, MOST_REPORT = 100_000, 4096
"""Most node reports that are read, and most bytes of each: whoever can write a report must not fill a reader's memory."""
READ = (".json", ".jsonl", ".sig", f"/{release_layout.SUMS}")
"""Endings of the names of files whose content is read in each tree; a `TreeLayout` adds its own."""
ALL = "all"
"""Name that stands for every version in an argument that lists versions."""


class TreeLayout(Struct, frozen=True, kw_only=True):
    """Names in a release tree that a kind of product chooses.

    `shared` is a folder beside the products, whose files follow the pointers of all of them (empty: none). `read` are endings of
    further names of files whose content is read.
    """

    manifest: str = "manifest.json"
    pointer: str = release_layout.CURRENT
    shared: str = ""
    read: tuple[str, ...] = ()

    @property
    def signature(self) -> str:
        """Return the name of the file with the signature of the manifest."""
        return f"{self.manifest}.sig"


class TreeEntry(Struct, frozen=True):
    """A file, folder, link or anything else in a release tree.

    `names` is the number of its hard links, `target` the target of a symbolic link.
    """

    mode: int
    size: int
    modified: int
    names: int
    target: str = ""

    @property
    def is_file(self) -> bool:
        """Return True for an ordinary file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Return True for a folder, False for a link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Return True for a symbolic link."""
        return stat.S_ISLNK(self.mode)


class ReleaseTree(Struct, kw_only=True):
    """The folder of one product in a release tree, and what all products share, as a transport read them.

    `entries` are those of the product, of the shared folder, and right below the root; `contents` the bytes of small files;
    `digests` those of the files of the versions that were asked for. `nodes` are reports by file name, `reported_at` the times when
    they were written (UTC seconds, by the clock of the machine that keeps the tree). `products` are the names of all products,
    `unwritable` the folders that a publication writes into and this user may not.
    """

    root: str
    product: str
    layout: TreeLayout = TreeLayout()
    entries: dict[str, TreeEntry] = {}
    contents: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    nodes: dict[str, bytes] = {}
    reported_at: dict[str, int] = {}
    products: tuple[str, ...] = ()
    unwritable: tuple[str, ...] = ()

    def path(self, *parts: str) -> str:
        """Return a path below the product's own folder, relative to the root of the tree."""
        return "/".join((self.product, *parts))

    def version_path(self, version: str, *parts: str) -> str:
        """Return a path below the folder of a version, relative to the root of the tree."""
        return "/".join((self.product, release_layout.VERSIONS, version, *parts))

    def below(self, folder: str) -> dict[str, TreeEntry]:
        """Return path below `folder` → entry, for everything below it at any depth."""
        start = folder.rstrip("/") + "/"
        return {path.removeprefix(start): entry for path, entry in self.entries.items() if path.startswith(start)}

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the sorted names of the entries directly in a folder."""
        return tuple(sorted(path for path in self.below(folder) if "/" not in path))

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the names of the versions, the oldest first. Anything else in the folder of versions is left out."""
        names = [name for name in self.names(self.path(release_layout.VERSIONS)) if release_layout.number_of(name) >= 0]
        folders = [name for name in names if self.entries[self.version_path(name)].is_folder]
        return tuple(sorted(folders, key=lambda name: (release_layout.number_of(name), name)))

    @property
    def current(self) -> str:
        """Return the version that the pointer names; empty if there is no pointer or it names no version."""
        entry = self.entries.get(self.path(self.layout.pointer))
        folder, _, name = (entry.target if entry and entry.is_link else "").partition("/")
        return name if folder == release_layout.VERSIONS and release_layout.number_of(name) >= 0 else ""

    def manifest(self, version: str) -> bytes | None:
        """Return the bytes of a version's manifest; None if it is missing."""
        return self.contents.get(self.version_path(version, self.layout.manifest))

    def manifest_digest(self, version: str) -> str:
        """Return the digest of a version's manifest; empty if it is missing."""
        data = self.manifest(version)
        return "" if data is None else digest_bytes(data)

    def sums(self, version: str) -> dict[str, str]:
        """Return path → digest from the SHA256SUMS of a version; empty if the file is missing or unreadable."""
        try:
            return release_layout.read_sums(self.contents[self.version_path(version, release_layout.SUMS)])
        except (KeyError, ReleaseError):
            return {}

    @property
    def recorded_history(self) -> tuple[Switch, ...]:
        """Return the switches of the pointer in the file `history.jsonl`, oldest first."""
        return release_layout.read_history(self.contents.get(self.path(release_layout.HISTORY), b""))[0]

    @property
    def last_recorded(self) -> str:
        """Return the version that `history.jsonl` calls current; empty without a history."""
        switches = self.recorded_history
        return switches[-1].to if switches else ""

    @property
    def history(self) -> tuple[Switch, ...]:
        """Return the switches of the pointer, oldest first, including a last one that a killed publisher made but did not record.

        A publisher writes the new history into `incoming` before it switches the pointer. So the switch is known even if the
        publisher was killed right behind it: readers use the new version from that moment on.
        """
        recorded = self.recorded_history
        if self.last_recorded == self.current:
            return recorded
        prepared = [self._prepared_history(name, recorded) for name in self.names(self.path(release_layout.INCOMING))]
        return max((history for history in prepared if history), key=lambda history: history[-1].rollback, default=recorded)

    def _prepared_history(self, attempt: str, recorded: tuple[Switch, ...]) -> tuple[Switch, ...]:
        """Return the history that an attempt prepared, if it extends the recorded one up to the current version; else empty."""
        data = self.contents.get(self.path(release_layout.INCOMING, attempt, release_layout.HISTORY), b"")
        prepared, unreadable = release_layout.read_history(data)
        continues = prepared[: len(recorded)] == recorded and len(prepared) > len(recorded) and not unreadable
        return prepared if continues and prepared[-1].to == self.current else ()

    @property
    def before(self) -> str:
        """Return the version that was current before the current one, even if it has been removed; empty if unknown."""
        switches = self.history
        if not switches or not self.current:
            return ""
        return switches[-1].before if switches[-1].to == self.current else switches[-1].to

    @property
    def kept_before(self) -> str:
        """Return the version that was current before the current one, if it is still there; else an empty text."""
        return self.before if self.before in self.versions else ""

    @property
    def incoming(self) -> tuple[str, ...]:
        """Return the names in `incoming`, a held lock included: an attempt at work, or the remains of one."""
        folder = self.path(release_layout.INCOMING)
        # A lock that was given back is an empty file.
        free = {name for name, entry in self.below(folder).items() if name.startswith(release_layout.LOCK) and not entry.size}
        return tuple(name for name in self.names(folder) if name not in free)

    @property
    def strays(self) -> tuple[str, ...]:
        """Return the names in `incoming` that are no lock files; the next holder of the lock removes them."""
        return tuple(name for name in self.incoming if not name.startswith(release_layout.LOCK))

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Return the names in `incoming` that a stopped attempt left: no lock files, nor claims of waiting processes."""
        return tuple(name for name in self.strays if not name.startswith(release_layout.CLAIM))
