"""Transport to a release tree (a published release folder) on this machine, or on a network file system that is mounted here.

A network file system may answer with an error although it did what it was asked; the helpers below tell that from a failure.
"""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from steps.clients.releases import tree_operations
from steps.clients.releases.release_tree import ALL, MOST_BYTES, MOST_NODES, MOST_REPORT, READ, ReleaseTree, TreeEntry, TreeLayout
from steps.clients.releases.tree_operations import CHUNK, Claimed, Operation, failure
from steps.contract import release_layout
from steps.errors import StepError

_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_DISK = {errno.ESTALE, errno.EIO, errno.ETIMEDOUT}
_RIGHT = {errno.EACCES, errno.EPERM}
_CODES = {"device": {errno.EXDEV}, "right": _RIGHT, "room": _ROOM, "disk": _DISK}
_GONE = {errno.ENOENT, errno.ESTALE}
_OPEN = {errno.ENOTEMPTY, errno.EBUSY}
"""Error numbers of removing a folder in which NFS keeps a removed file under another name, while a process here has it open."""
_TRIES = 3  # a folder is removed so often: NFS may answer with an error although it removed something
_FILE, _FOLDER = 0o644, 0o755
"""Modes of files and folders: web servers may read them whatever the umask of this process is."""


class LocalTransport:
    """A `TreeTransport` by system calls of this machine.

    Creating one raises BadTask or StoreBusy if the root is no folder, or does not answer.
    """

    def __init__(self, root: Path, layout: TreeLayout = TreeLayout()) -> None:
        self.where, self._layout = str(root), layout
        self._root = root
        self._lock: Path | None = None
        try:
            is_folder = stat.S_ISDIR(os.stat(root).st_mode)
        except OSError as error:
            raise failure("disk" if error.errno in _DISK else "root", error.strerror or "", self.where) from error
        if not is_folder:
            raise failure("root", "", self.where)

    def look(self, product: str, digests: Sequence[str] = ()) -> ReleaseTree:
        """Read the folder of a product as it is now: names, small files, and the last reports of nodes.

        For the versions named in `digests` (`ALL`: every version) the digest of each file is computed, which reads whole files.
        """
        tree, shared = ReleaseTree(root=str(self._root.resolve()), product=product, layout=self._layout), self._layout.shared
        with self._naming("look"):
            for name in sorted(os.listdir(self._root)):
                self._see(tree, name, digests, deep=name in (product, shared))
            tree.products = tuple(
                name for name in tree.entries if "/" not in name and os.path.isdir(self._root / name / release_layout.VERSIONS)
            )
            for path in sorted(self._root.glob(f"{release_layout.NODES}/*.json"))[:MOST_NODES]:
                with suppress(OSError), path.open("rb") as file:
                    tree.nodes[path.name] = file.read(MOST_REPORT)
                    tree.reported_at[path.name] = int(os.fstat(file.fileno()).st_mtime)
            tree.unwritable = unwritable(self._root, product, shared)
        return tree

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        """Try to take the lock of a folder for the process that `holder` describes; return at once with the outcome.

        `over` is the number of a held lock that may be taken over, because its holder is known to be gone.
        """
        place, mine = self._root / folder, self._root / folder / f"{release_layout.CLAIM}{token}"
        with self._naming(f"{folder}/{release_layout.LOCK}"):
            try:
                _write(mine, holder + b"\n", None)
                return self._claimed(place, mine, token, over)
            except OSError as error:
                # A lock gave way to a newer one meanwhile, or its holder cleared the claim away.
                if error.errno not in _GONE:
                    raise
                return Claimed(had=False, free=True)
            finally:
                mine.unlink(missing_ok=True)

    def perform(self, operations: Iterable[Operation]) -> None:
        """Perform operations in order; stop at the first that fails and raise its StepError."""
        for operation in operations:
            with self._naming(getattr(operation, "path", getattr(operation, "folder", ""))):
                self._perform(operation)

    def close(self) -> None:
        """Do nothing, because no connection is open."""

    def _claimed(self, place: Path, mine: Path, token: str, over: int) -> Claimed:
        number, why = max(_locks(place), default=0), ""
        lock = place / f"{release_layout.LOCK}{number}"
        if number != over and (holder := lock.read_bytes()[:4096]):
            # both times are the file server's, so the clocks of the machines need not agree
            return Claimed(had=False, number=number, holder=holder, age=mine.stat().st_mtime - lock.stat().st_mtime)
        lock = place / f"{release_layout.LOCK}{number + 1}"
        try:
            os.link(mine, lock)
        except OSError as error:
            why = error.strerror or str(error)
        if not _holds(lock, token):  # NFS may answer with an error although it made the link: the file itself decides
            return Claimed(had=False, free=True, why=why)
        for other in _locks(place):
            if other > number + 1:  # this number was used up before, by a process that has given the lock back since
                lock.unlink(missing_ok=True)
                return Claimed(had=False, free=True)
            if other <= number:
                (place / f"{release_layout.LOCK}{other}").unlink(missing_ok=True)
        self._lock = lock
        return Claimed(had=True)

    def _perform(self, operation: Operation) -> None:
        match operation:
            case tree_operations.MakeFolder(path):
                _make_folder(self._root, path)
            case tree_operations.Put(path, source, size):
                self._put(self._root / path, source, size, path)
            case tree_operations.CheckFile(path, size, digest):
                if (self._root / path).stat().st_size != size or _digest(self._root / path, self._renew) != digest:
                    raise failure("digest", path, self.where)
            case tree_operations.Sync(path):
                _flush(self._root / path)
            case tree_operations.Move(path, to):
                if os.path.lexists(self._root / to):  # rename(2) would silently replace a file or an empty folder
                    raise failure("exists", to, self.where)
                _rename(self._root / path, self._root / to)
            case tree_operations.Replace(path, to):
                _rename(self._root / path, self._root / to)
            case tree_operations.Link(path, target):
                _link(self._root / path, target)
            case tree_operations.Remove(path):
                self._remove(path)
            case _:
                self._about_lock(operation)

    def _about_lock(self, operation: Operation) -> None:
        match operation:
            case tree_operations.ConfirmLock(folder, token):
                if not _holds(_newest(self._root / folder), token):
                    raise failure("lost", folder, self.where)
                self._renew()
            case tree_operations.ReleaseLock(folder, token):
                # Another process that sees the empty file may take the next lock, and remove this one, before this call returns.
                with suppress(FileNotFoundError):
                    if _holds(lock := _newest(self._root / folder), token):
                        # not removed: a number that came again could be taken for that of a dead holder (`over`)
                        os.truncate(lock, 0)
                self._lock = None

    def _put(self, path: Path, source: bytes | Path, size: int, name: str) -> None:
        if isinstance(source, bytes):
            written = _write(path, source, self._renew)
        else:
            with source.open("rb") as stream:
                written = _write(path, iter(lambda: stream.read(CHUNK), b""), self._renew)
        if written != size:
            raise failure("short", name, self.where)

    def _remove(self, path: str) -> None:
        place, tries = self._root / path, 0
        while os.path.lexists(place):
            try:
                _remove_path(place)
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

    def _see(self, tree: ReleaseTree, name: str, digests: Sequence[str], *, deep: bool) -> None:
        path = self._root / name
        try:
            facts = path.lstat()
            target = os.readlink(path) if stat.S_ISLNK(facts.st_mode) else ""
        except OSError as error:
            if not _is_gone(path, error):
                raise
            return
        entry = TreeEntry(facts.st_mode, facts.st_size, int(facts.st_mtime), facts.st_nlink, target)
        tree.entries[name] = entry
        with _if_there(path):  # a folder or file that cannot be read gets no entries, no bytes and no digest
            if entry.is_folder and deep:
                for below in sorted(os.listdir(path)):
                    self._see(tree, f"{name}/{below}", digests, deep=True)
            elif entry.is_file and "/" in name:
                self._read(tree, name, entry, digests)

    def _read(self, tree: ReleaseTree, name: str, entry: TreeEntry, digests: Sequence[str]) -> None:
        parts = name.split("/")
        is_wanted = len(parts) > 3 and parts[1] == release_layout.VERSIONS and (parts[2] in digests or ALL in digests)
        with self._naming(name), _if_there(self._root / name):  # a publisher at work removes its files in `incoming`
            if name.endswith((*READ, *self._layout.read)) and entry.size <= MOST_BYTES:
                tree.contents[name] = (self._root / name).read_bytes()
            if parts[0] == tree.product and is_wanted:
                tree.digests[name] = _digest(self._root / name, self._renew)

    def _naming(self, what: str) -> AbstractContextManager[None]:
        return naming(what, self.where)


@contextmanager
def naming(what: str, where: str) -> Iterator[None]:
    """Turn an OSError within the block into a StepError that names `what` in the tree `where`."""
    try:
        yield
    except StepError:
        raise
    except OSError as error:
        code = next((name for name, numbers in _CODES.items() if error.errno in numbers), "os")
        text = what if code == "device" else f"{what}: {error.strerror or error}"
        raise failure(code, text, where) from error


def unwritable(root: Path, product: str, shared: str = "") -> tuple[str, ...]:
    """Return the folders that a publication of a product writes into, but that this user may not write.

    In place of a missing folder, the nearest one above it is checked, in which it would be made.
    """
    written = (
        f"{product}/{release_layout.INCOMING}",
        f"{product}/{release_layout.VERSIONS}",
        product,
        *((shared,) if shared else ()),
    )
    nearest = (next((at for at in (root / path, *(root / path).parents) if os.path.isdir(at)), root) for path in written)
    writable = {str(at.relative_to(root)): os.access(at, os.W_OK | os.X_OK) for at in nearest}
    return tuple(sorted(path for path, may in writable.items() if not may))


def _holds(lock: Path, token: str) -> bool:
    try:
        return f'"{token}"'.encode() in lock.read_bytes()
    except FileNotFoundError:
        return False


def _locks(folder: Path) -> list[int]:
    """Return the numbers of all lock files in a folder."""
    numbers = (name.removeprefix(release_layout.LOCK) for name in os.listdir(folder) if name.startswith(release_layout.LOCK))
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def _newest(folder: Path) -> Path:
    return folder / f"{release_layout.LOCK}{max(_locks(folder), default=0)}"


def _make_folder(root: Path, path: str) -> None:
    """Make a folder, and those above it, with rights by which web servers can read it whatever the umask of this process is."""
    for part in (*reversed(Path(path).parents), Path(path)):
        try:
            (root / part).mkdir()
        except FileExistsError:
            if not (root / part).is_dir():
                raise
        else:
            (root / part).chmod(_FOLDER)


def _write(path: Path, data: bytes | Iterable[bytes], renew: object) -> int:
    """Write a new file and flush it to disk; call `renew` after each part, to renew the lock. Return the number of bytes."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE)
    with os.fdopen(handle, "wb") as stream:
        os.fchmod(handle, _FILE)
        for part in (data,) if isinstance(data, bytes) else data:
            stream.write(part)
            if callable(renew):
                renew()
        stream.flush()
        os.fsync(handle)
        return stream.tell()


def _rename(path: Path, to: Path) -> None:
    """Rename a path.

    NFS: if the first answer was lost, the client repeats the call, and the server says that there is no such file any more.
    """
    before = path.lstat()
    try:
        os.replace(path, to)
    except FileNotFoundError:
        if not (os.path.lexists(to) and os.path.samestat(before, to.lstat())):
            raise


def _link(path: Path, target: str) -> None:
    """Make a symbolic link. NFS: if the first answer was lost, the repeated call finds the link there already."""
    try:
        os.symlink(target, path)
    except FileExistsError:
        if not (path.is_symlink() and os.readlink(path) == target):
            raise


def _flush(path: Path) -> None:
    """Flush the names in a folder to disk. Network file systems that refuse this (EINVAL) flush on their server by themselves."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def _digest(path: Path, renew: Callable[[], None]) -> str:
    """Return the digest `sha256:…` of a file; call `renew` after each part, to renew the lock."""
    hasher = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(CHUNK):
            hasher.update(part)
            renew()
    return f"sha256:{hasher.hexdigest()}"


def _remove_path(path: Path) -> None:
    """Remove a file, or a folder with everything in it; do nothing for a missing one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _is_gone(path: Path, error: OSError) -> bool:
    """Return True if an error means that the path is gone.

    NFS: a file that is open here and was removed by another client is stale. A mount that is stale itself is a failure.
    """
    if error.errno == errno.ESTALE:
        try:
            path.lstat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return isinstance(error, FileNotFoundError)


@contextmanager
def _if_there(path: Path) -> Iterator[None]:
    """Suppress an OSError within the block if the path is gone, or may not be read."""
    try:
        yield
    except OSError as error:
        if not (isinstance(error, PermissionError) or _is_gone(path, error)):
            raise
