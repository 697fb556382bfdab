"""Garbage collection in the store of a builder: assembled trees, and entries of the build cache.

A tree can be assembled again from the cache, so only its age counts. An entry of the cache costs a build, so the caller says which
hashes stay.
"""

import contextlib
import fcntl
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

_TREE: Final = re.compile(r"[0-9a-f]{64}")
_ENTRY: Final = re.compile(r"([a-z0-9]{16,64})(?:\.json|-[0-9a-f]{12}\.tar\.zst)")


class StoreItem(Struct, frozen=True, kw_only=True):
    """A tree or an entry of the build cache that was removed, or would be: its name and its bytes."""

    name: str
    size: int


@contextlib.contextmanager
def hold_tree(folder: Path) -> Iterator[None]:
    """Keep an assembled tree from being removed or made anew during the block, and note that it was used.

    Pods assemble trees as root, and publish them as another user, who may open the lock for reading alone and set no times.
    """
    if not folder.is_dir():
        yield
        return
    with _opened(_lock_of(folder)) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            os.utime(folder)
        yield


def _opened(lock: Path) -> IO[str]:
    try:
        return lock.open("a")
    except PermissionError:
        return lock.open()


def collect_trees(trees: Path, recent: float, *, dry_run: bool) -> tuple[StoreItem, ...]:
    """Remove the assembled trees that nobody used in the last `recent` seconds, and return them. One in use stays."""
    removed = []
    for folder in sorted(trees.iterdir()) if trees.is_dir() else ():
        if not _TREE.fullmatch(folder.name) or folder.stat().st_mtime > time.time() - recent:
            continue
        item = StoreItem(name=folder.name, size=_size(folder))
        with _lock_of(folder).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            removed.append(item)
            if not dry_run:
                # first another name, so that no reader finds half a tree; one that is killed here is removed by the next assembly
                gone = trees / f".{folder.name}.part-gone"
                folder.rename(gone)
                shutil.rmtree(gone)
    return tuple(removed)


def collect_entries(folder: Path, keep: Collection[str], recent: float, *, dry_run: bool) -> tuple[StoreItem, ...]:
    """Remove the entries of a build cache whose hash is not in `keep`, and return them. What was written lately stays.

    `folder` is that of one install root. `recent` is in seconds.
    """
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := _ENTRY.fullmatch(path.name):
            files.setdefault(match[1], []).append(path)
    removed = []
    for hash_, paths in files.items():
        facts = [path.stat() for path in paths]
        if hash_ in keep or max(fact.st_mtime for fact in facts) > time.time() - recent:
            continue
        removed.append(StoreItem(name=hash_, size=sum(fact.st_size for fact in facts)))
        # the description first: a reader then sees no entry, while one without its archive counts as tampered with
        for path in sorted(paths, key=lambda path: path.suffix != ".json") if not dry_run else ():
            path.unlink(missing_ok=True)
    return tuple(removed)


def _lock_of(folder: Path) -> Path:
    """Return the lock file of a tree, which its assembly holds too."""
    return folder.with_name(f".{folder.name}.lock")


def _size(folder: Path) -> int:
    return sum((Path(base) / name).lstat().st_size for base, _, names in os.walk(folder) for name in names)
