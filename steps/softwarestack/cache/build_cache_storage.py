"""Storage of a build cache: the entry of a package, errors, and what a folder or a registry must offer to hold entries."""

from contextlib import AbstractContextManager
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from steps.softwarestack.contract.package_build import BuildFailure

SCHEMA: Final = 1
LARGEST_ENTRY: Final = 8 << 20
"""Bytes above which no description is read; one of 50,000 module files has 5 MB."""


class CacheEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of a package in the cache.

    `root` is the install root for which it was built, `archive` the digest of its archive, `size` the bytes of that. `modules` are
    its module files below the folder of modules; `members` and `unpacked` (bytes) bound what unpacking may write. `seconds` is the
    build tool's time, `builder` the tool and its release, `log` the digest of the build's log.
    """

    hash: str
    title: str
    root: str
    archive: str
    size: int
    modules: tuple[str, ...]
    members: int
    unpacked: int
    seconds: float = 0.0
    builder: str = ""
    log: str = ""
    schema: int = SCHEMA


class CacheError(Exception):
    """Error: an entry cannot be used; `failure` is tampered, unsigned, permission or registry, the message says what is wrong.

    If `temporary`, another attempt may not fail.
    """

    def __init__(self, failure: BuildFailure, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.failure, self.is_temporary = failure, temporary


class CacheStorage(Protocol):
    """Place of the entries of one install root: a description and an archive for each package hash.

    Nothing here is verified: `BuildCache` compares descriptions and archives with each other, and checks signatures.
    """

    @property
    def folder(self) -> Path:
        """Folder of this machine in which archives are written."""
        ...

    def hashes(self) -> frozenset[str]:
        """Return the hashes of all entries, by their names alone. Raises a StepError if the names cannot be read."""
        ...

    def where(self, hash_: str) -> str:
        """Return the place of a description, for people."""
        ...

    def place_of(self, entry: CacheEntry) -> str:
        """Return the place of an archive, for people."""
        ...

    def description(self, hash_: str) -> bytes | None:
        """Return the bytes of a description, cut off above LARGEST_ENTRY; None if there is none. Raises CacheError."""
        ...

    def open_archive(self, entry: CacheEntry) -> AbstractContextManager[BufferedReader | BufferedRandom]:
        """Open the archive of an entry for reading; what it yields is a file of this machine. Raises CacheError."""
        ...

    def require_writable(self) -> None:
        """Raise CacheError or OSError unless entries can be added."""
        ...

    def draft(self) -> AbstractContextManager[BufferedRandom]:
        """Open a new file in `folder` for an archive; it is gone after the block unless `add` has kept it."""
        ...

    def add(self, entry: CacheEntry, archive: BufferedRandom, description: bytes) -> bool:
        """Store a draft as the archive, then the description. Return False if readers may see another writer's description.

        Raises OSError and CacheError.
        """
        ...

    def discard(self, entry: CacheEntry) -> None:
        """Remove the archive of a writer whose description was not stored."""
        ...

    def remove_leftovers(self, age: float, current: float) -> int:
        """Remove files that killed writers left, older than `age` seconds at the time `current`; return their number."""
        ...
