"""A tree on this machine or a mount of it."""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from steps.clients.published import files
from steps.clients.published import operations as do
from steps.clients.published.operations import CHUNK, Claimed, Operation, failure
from steps.clients.published.tree import ALL, MOST_BYTES, MOST_NODES, MOST_REPORT, READ, Entry, Tree
from steps.contract.image import published
from steps.errors import StepError

_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_DISK = {errno.ESTALE, errno.EIO, errno.ETIMEDOUT}
_RIGHT = {errno.EACCES, errno.EPERM}
_CODES = {"device": {errno.EXDEV}, "right": _RIGHT, "room": _ROOM, "disk": _DISK}
_GONE = {errno.ENOENT, errno.ESTALE}
_OPEN = {errno.ENOTEMPTY, errno.EBUSY}
"""A network file system keeps a removed file in its folder, by another name, as long as a process of this machine has it open."""
_TRIES = 3  # times that a folder is removed: what was removed may be answered with a no


class Local:
    """Implements `operations.Transport` with this machine's own calls."""

    def __init__(self, root: Path) -> None:
        self.where = str(root)
        self._root = root
        self._lock: Path | None = None
        try:
            is_folder = stat.S_ISDIR(os.stat(root).st_mode)
        except OSError as error:
            raise failure("disk" if error.errno in _DISK else "root", error.strerror or "", self.where) from error
        if not is_folder:
            raise failure("root", "", self.where)

    def look(self, image: str, digests: Sequence[str] = ()) -> Tree:
        """What is there."""
        tree = Tree(root=str(self._root.resolve()), image=image)
        with self._saying("look"):
            for name in sorted(os.listdir(self._root)):
                self._see(tree, name, digests, deep=name in (image, published.BOOT))
            tree.images = tuple(
                name for name in tree.entries if "/" not in name and os.path.isdir(self._root / name / published.VERSIONS)
            )
            for path in sorted(self._root.glob(f"{published.NODES}/*.json"))[:MOST_NODES]:
                with suppress(OSError), path.open("rb") as file:
                    tree.nodes[path.name] = file.read(MOST_REPORT)
                    tree.told[path.name] = int(os.fstat(file.fileno()).st_mtime)
            tree.unwritable = unwritable(self._root, image)
        return tree

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Try to have the lock of a folder."""
        place, mine = self._root / folder, self._root / folder / f"{published.CLAIM}{token}"
        with self._saying(f"{folder}/{published.LOCK}"):
            try:
                files.write(mine, holder + b"\n", None)
                return self._claimed(place, mine, token, over)
            except OSError as error:  # a lock gave way to a newer one meanwhile, or its holder cleared the claim away
                if error.errno not in _GONE:
                    raise
                return Claimed(had=False, free=True)
            finally:
                mine.unlink(missing_ok=True)

    def perform(self, operations: Iterable[Operation]) -> None:
        """Do these in order."""
        for one in operations:
            with self._saying(getattr(one, "path", getattr(one, "folder", ""))):
                self._one(one)

    def close(self) -> None:
        """Nothing is open."""

    def _claimed(self, place: Path, mine: Path, token: str, over: int) -> Claimed:
        number, why = max(_locks(place), default=0), ""
        lock = place / f"{published.LOCK}{number}"
        if number != over and (said := lock.read_bytes()[:4096]):
            return Claimed(had=False, number=number, holder=said, age=mine.stat().st_mtime - lock.stat().st_mtime)
        lock = place / f"{published.LOCK}{number + 1}"
        try:
            os.link(mine, lock)
        except OSError as error:
            why = error.strerror or str(error)
        if not _holds(lock, token):  # a network file system may say no although it did it
            return Claimed(had=False, free=True, why=why)
        for other in _locks(place):
            if other > number + 1:  # this number had been used up before, by who has given way since
                lock.unlink(missing_ok=True)
                return Claimed(had=False, free=True)
            if other <= number:
                (place / f"{published.LOCK}{other}").unlink(missing_ok=True)
        self._lock = lock
        return Claimed(had=True)

    def _one(self, one: Operation) -> None:
        match one:
            case do.Folder(path):
                files.make(self._root, path)
            case do.Put(path, source, size):
                self._put(self._root / path, source, size, path)
            case do.Check(path, size, digest):
                if files.size(self._root / path) != size or files.digest(self._root / path, self._renew) != digest:
                    raise failure("digest", path, self.where)
            case do.Sync(path):
                files.flush(self._root / path)
            case do.Move(path, to):
                if os.path.lexists(self._root / to):
                    raise failure("exists", to, self.where)
                files.rename(self._root / path, self._root / to)
            case do.Replace(path, to):
                files.rename(self._root / path, self._root / to)
            case do.Link(path, target):
                files.link(self._root / path, target)
            case do.Remove(path):
                self._remove(path)
            case _:
                self._about_lock(one)

    def _about_lock(self, one: Operation) -> None:
        match one:
            case do.Held(folder, token):
                if not _holds(_newest(self._root / folder), token):
                    raise failure("lost", folder, self.where)
                self._renew()
            case do.Release(folder, token):
                with suppress(FileNotFoundError):  # whoever sees it empty may take the next one before this is answered
                    if _holds(lock := _newest(self._root / folder), token):
                        os.truncate(lock, 0)
                self._lock = None

    def _put(self, path: Path, source: bytes | Path, size: int, said: str) -> None:
        if isinstance(source, bytes):
            written = files.write(path, source, self._renew)
        else:
            with source.open("rb") as stream:
                written = files.write(path, iter(lambda: stream.read(CHUNK), b""), self._renew)
        if written != size:
            raise failure("short", said, self.where)

    def _remove(self, path: str) -> None:
        place, tries = self._root / path, 0
        while os.path.lexists(place):
            try:
                files.remove(place)
            except OSError as error:
                tries += 1
                if tries < _TRIES and error.errno in {errno.ENOENT, *_OPEN}:
                    continue
                if error.errno not in _OPEN:
                    raise
                raise failure("open", path, self.where) from error

    def _renew(self) -> None:
        if self._lock is not None:
            with suppress(FileNotFoundError):
                os.utime(self._lock)

    def _see(self, tree: Tree, name: str, digests: Sequence[str], *, deep: bool) -> None:
        path = self._root / name
        try:
            found = path.lstat()
            target = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
        except OSError as error:
            if not files.is_gone(path, error):
                raise
            return
        entry = Entry(found.st_mode, found.st_size, int(found.st_mtime), found.st_nlink, target)
        tree.entries[name] = entry
        with files.if_there(path):  # what cannot be looked into has no entries, no bytes and no digest
            if entry.is_folder and deep:
                for below in sorted(os.listdir(path)):
                    self._see(tree, f"{name}/{below}", digests, deep=True)
            elif entry.is_file and "/" in name:
                self._read(tree, name, entry, digests)

    def _read(self, tree: Tree, name: str, entry: Entry, digests: Sequence[str]) -> None:
        parts = name.split("/")
        is_asked = len(parts) > 3 and parts[1] == published.VERSIONS and (parts[2] in digests or ALL in digests)
        with self._saying(name), files.if_there(self._root / name):  # a publisher at work removes what it is done with
            if name.endswith(READ) and entry.size <= MOST_BYTES:
                tree.contents[name] = (self._root / name).read_bytes()
            if parts[0] == tree.image and is_asked:
                tree.digests[name] = files.digest(self._root / name, self._renew)

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except StepError:
            raise
        except OSError as error:
            code = next((name for name, numbers in _CODES.items() if error.errno in numbers), "os")
            said = what if code == "device" else f"{what}: {error.strerror or error}"
            raise failure(code, said, self.where) from error


def unwritable(root: Path, image: str) -> tuple[str, ...]:
    """Folders that a publication of an image puts names into, and that this user may not write; where one is missing, that which it
    would be made in."""
    written = (f"{image}/{published.INCOMING}", f"{image}/{published.VERSIONS}", image, published.BOOT)
    nearest = (next((at for at in (root / path, *(root / path).parents) if os.path.isdir(at)), root) for path in written)
    found = {str(at.relative_to(root)): os.access(at, os.W_OK | os.X_OK) for at in nearest}
    return tuple(sorted(path for path, may in found.items() if not may))


def _holds(lock: Path, token: str) -> bool:
    try:
        return f'"{token}"'.encode() in lock.read_bytes()
    except FileNotFoundError:
        return False


def _locks(folder: Path) -> list[int]:
    """Numbers of all locks there are, read at once: small folders are."""
    numbers = (name.removeprefix(published.LOCK) for name in os.listdir(folder) if name.startswith(published.LOCK))
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def _newest(folder: Path) -> Path:
    return folder / f"{published.LOCK}{max(_locks(folder), default=0)}"
