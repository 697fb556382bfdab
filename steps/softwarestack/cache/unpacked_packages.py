"""Unpacked packages of the build cache on a local disk, shared by the builds of a machine and read-only in their sandboxes.

SCRATCH/unpacked/BOOT/PREFIX8/HASH-DIGEST12/{prefix,modules}

A folder appears by a rename once it is complete. It is not flushed to disk, so it is only trusted until the machine starts anew:
BOOT is the id of this start, and folders of earlier ones are removed.
"""

import contextlib
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

from steps import timeouts
from steps.softwarestack.cache import package_packing
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_storage import CacheEntry, CacheError
from steps.softwarestack.cache.package_packing import PackingError
from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import prefix_digest

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class UnpackedPackages:
    """Packages of one build cache, unpacked when they are needed."""

    def __init__(self, scratch: Path, cache: BuildCache, root: str) -> None:
        self._folder = scratch / "unpacked" / _boot()
        self._cache, self._prefix = cache, prefix_digest(root)

    def folder(self, entry: CacheEntry, place: str) -> Path:
        """Return the folder of an unpacked package, whose published path is `place`.

        Raises CacheError if the archive is not what its entry says or holds anything that no package may hold, OSError.
        """
        target = self._folder / self._prefix / f"{entry.hash}-{entry.archive.removeprefix('sha256:')[:12]}"
        if target.is_dir():
            with contextlib.suppress(OSError):  # note the use, for `remove_old`
                os.utime(target)
            return target
        work = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        work.mkdir(parents=True)
        try:
            self._unpack(entry, place, work)
            work.chmod(0o755)
            with contextlib.suppress(OSError):  # another build was first: a rename replaces no folder with files in it
                work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return target

    def _unpack(self, entry: CacheEntry, place: str, work: Path) -> None:
        with self._cache.open_archive(entry) as archive:
            try:
                content = package_packing.unpack(archive, work, place=place, most=entry.unpacked)
            except PackingError as error:
                raise CacheError(BuildFailure.TAMPERED, f"the archive of {entry.title} in the cache: {error}") from error
        if (content.modules, content.members) != (entry.modules, entry.members):
            raise CacheError(
                BuildFailure.TAMPERED, f"the archive of {entry.title} in the cache has other files than its entry says"
            )

    def remove_old(self, current: float) -> None:
        """Remove what was unpacked before this machine was started, and packages that no build has used for long.

        `current` is the time in seconds since the epoch. What a running build shows was used less than a build's time limit ago.
        """
        for folder in self._folder.parent.glob("*"):
            if folder.name != self._folder.name:
                shutil.rmtree(folder, ignore_errors=True)
        for package in (self._folder / self._prefix).glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if current - package.stat().st_mtime > timeouts.UNPACKED_UNUSED:
                    shutil.rmtree(package, ignore_errors=True)


def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()[:8]
    except OSError:
        return "unknown"
