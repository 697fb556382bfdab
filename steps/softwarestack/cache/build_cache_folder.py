"""Storage of a build cache in a folder, which all builders mount.

CACHE/PREFIX8/HASH.json               description of the entry, optionally signed; written last
CACHE/PREFIX8/HASH-DIGEST12.tar.zst   its archive; the name has the first digits of the archive's digest
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Final

from steps.errors import BadTask
from steps.softwarestack.cache.build_cache_storage import LARGEST_ENTRY, CacheEntry, CacheError
from steps.softwarestack.contract.package_build import BuildFailure

_DESCRIPTION: Final = re.compile(r"([a-z0-9]{16,64})\.json")


class FolderStorage:
    """Entries in the folder of one install root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hashes(self) -> frozenset[str]:
        """Return the hashes of all entries, by the names of their files alone. Raises BadTask if the folder cannot be read."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise BadTask(f"build cache {self.folder}: {error.strerror}", hint="name a folder that can be read") from error
        return frozenset(match[1] for name in names if (match := _DESCRIPTION.fullmatch(name)))

    def where(self, hash_: str) -> str:
        """Return the path of a description."""
        return str(self._description(hash_))

    def place_of(self, entry: CacheEntry) -> str:
        """Return the path of an archive."""
        return str(self._archive(entry))

    def description(self, hash_: str) -> bytes | None:
        """Return the bytes of a description, cut off above LARGEST_ENTRY; None if there is none. Raises CacheError."""
        path = self._description(hash_)
        try:
            with path.open("rb") as file:
                return file.read(LARGEST_ENTRY + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CacheError(BuildFailure.PERMISSION, f"{path} cannot be read: {error.strerror}") from error

    @contextlib.contextmanager
    def open_archive(self, entry: CacheEntry) -> Iterator[BufferedReader]:
        """Open the archive of an entry for reading. Raises CacheError."""
        path = self._archive(entry)
        try:
            file = path.open("rb")
        except FileNotFoundError as error:
            raise CacheError(BuildFailure.TAMPERED, f"{path} is missing, and its entry names it") from error
        except OSError as error:
            raise CacheError(BuildFailure.PERMISSION, f"{path} cannot be read: {error.strerror}") from error
        with file:
            yield file

    def require_writable(self) -> None:
        """Raise CacheError or OSError unless this user may make files in the folder, or the folder itself."""
        nearest = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise CacheError(BuildFailure.PERMISSION, f"{nearest} cannot be written, and the build cache lies there")

    @contextlib.contextmanager
    def draft(self) -> Iterator[BufferedRandom]:
        """Open a new file beside the entries for an archive; it is gone after the block unless `add` has kept it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._temporary() as path, path.open("w+b") as file:
            yield file

    def add(self, entry: CacheEntry, archive: BufferedRandom, description: bytes) -> bool:
        """Give the archive its name, then the description; return False if another writer's description is there already."""
        os.fchmod(archive.fileno(), 0o644)
        os.replace(archive.name, self._archive(entry))
        with self._temporary() as temporary:
            with temporary.open("wb") as file:
                file.write(description)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, self._description(entry.hash))  # fails if it exists, while a rename would replace it
            except FileExistsError:
                return False
        _flush(self.folder)
        return True

    def discard(self, entry: CacheEntry) -> None:
        """Remove the archive of a writer whose description was not stored."""
        self._archive(entry).unlink(missing_ok=True)

    def remove_leftovers(self, age: float, current: float) -> int:
        """Remove half files, and archives without a description, older than `age` seconds; return their number."""
        removed, described = 0, self.hashes()
        orphans = (path for path in self.folder.glob("*.tar.zst") if path.name.partition("-")[0] not in described)
        for path in (*self.folder.glob(".*.part"), *orphans):
            with contextlib.suppress(FileNotFoundError):
                if current - path.stat().st_mtime > age:
                    path.unlink()
                    removed += 1
        return removed

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        path = self.folder / f".{secrets.token_hex(8)}.part"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _description(self, hash_: str) -> Path:
        return self.folder / f"{hash_}.json"

    def _archive(self, entry: CacheEntry) -> Path:
        return self.folder / f"{entry.hash}-{entry.archive.removeprefix('sha256:')[:12]}.tar.zst"


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
