"""Packages of a published root: copied in beside the others, compared, and given their place by one rename; removed if unneeded.

ROOT/packages/NAME-VERSION-HASH12/    a package; write-once, shared by all versions of all stacks
ROOT/packages/incoming/TOKEN/         packages that one publication is copying in, or a collection removes
ROOT/packages/incoming/TOKEN.json     packages that a publication reserved (`Reservation`), until its version names them

Two publishers of different stacks may need one package, and a third process may remove packages that no version names. Therefore a
publication writes its reservation while it holds the lock of ROOT/packages, and looks only then which packages are there. A
collection reads versions and reservations, and takes packages away, while it holds the same lock. Copying needs no lock.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.clock import Clock
from steps.clients.releases import release_lease
from steps.clients.releases.local_transport import naming
from steps.clients.releases.release_lease import Holder
from steps.clients.releases.tree_operations import (
    Claimed,
    ConfirmLock,
    MakeFolder,
    Move,
    Operation,
    Put,
    Remove,
    Sync,
    TreeTransport,
    failure,
)
from steps.contract import release_layout
from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.errors import BadTask, Refused, StepError, StoreBusy
from steps.softwarestack.contract import package_files
from steps.softwarestack.contract.package_files import LISTING, ListedFile
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import PackageContent
from steps.softwarestack.publication import package_checks, package_listing
from steps.softwarestack.publication.package_checks import PackageChecks

Say = Callable[[str], None]
INCOMING: Final = f"{PACKAGES}/{release_layout.INCOMING}"
_COPIES: Final = 8
"""Files that are copied at a time. Each is flushed, and a file server answers many flushes in the time of one."""
_FOLDER, _FILE, _PROGRAM = 0o755, 0o644, 0o755
_CHUNK: Final = 1 << 20


class Reservation(Struct, frozen=True, kw_only=True):
    """Folders of packages that a publication needs, and the process that publishes."""

    stack: str
    folders: tuple[str, ...]
    holder: Holder


class PackageCollection(Struct, frozen=True, kw_only=True):
    """Result of removing packages: folders that went, number of those that stay, and leftovers of stopped attempts that went."""

    removed: tuple[str, ...]
    kept: int
    leftovers: tuple[str, ...] = ()


class PackageStore:
    """The packages of one published root on this machine, or on a file system that is mounted here."""

    def __init__(self, transport: TreeTransport, root: Path, clock: Clock) -> None:
        self._transport, self._root, self._clock = transport, root, clock

    @contextmanager
    def reserve(self, stack: str, packages: Iterable[PackageContent], actor: str) -> Iterator[str]:
        """Reserve packages for a publication during the block, so that nobody removes them; yield its token.

        What stopped attempts left in `incoming` is removed first. Raises a StepError.
        """
        token = release_lease.new_token()
        folders = tuple(sorted({package.folder for package in packages}))
        data = canonical(Reservation(stack=stack, folders=folders, holder=release_lease.this_process(token, actor)))
        with self._locked(token, actor):
            leftovers = self._leftovers()
            self._transport.perform([Put(f"{INCOMING}/{token}.json", data, len(data)), Sync(INCOMING)])
        try:
            self._discard(leftovers)
            yield token
        finally:
            self._discard([token, f"{token}.json"])

    def copy(self, source: Path, packages: Iterable[PackageContent], token: str, say: Say) -> tuple[PackageContent, ...]:
        """Copy the packages that the root lacks from an assembled tree, and return them. Packages that are there are compared.

        Raises Refused if one that is there differs: nothing published is overwritten. Raises BadTask if the source differs from its
        manifest, StoreBusy if there is too little room.
        """
        checks, wanted = PackageChecks(self._root), list(packages)
        missing = [package for package in wanted if not checks.is_there(package)]
        for package in wanted:
            if package not in missing:
                self._refuse_other(checks, package)
        self._refuse_full(missing)
        for number, package in enumerate(missing, start=1):
            say(f"copies package {package.folder} ({number} of {len(missing)}): {package.size / 1e6:.1f} MB")
            self._copy_package(source / PACKAGES / package.folder, package, f"{INCOMING}/{token}")
        return tuple(missing)

    def collect(self, actor: str, *, dry_run: bool = False) -> PackageCollection:
        """Remove the packages that no version of any stack names and no publication has reserved, and leftovers; return them.

        Raises Refused if a manifest cannot be read, before anything is removed. `dry_run`: remove nothing.
        """
        token = release_lease.new_token()
        if not (self._root / PACKAGES).is_dir():
            return PackageCollection(removed=(), kept=0)
        with naming(PACKAGES, str(self._root)):
            if dry_run:
                unneeded, leftovers = self._unneeded(), self._leftovers()
            else:
                with self._locked(token, actor):
                    unneeded, leftovers = self._unneeded(), self._leftovers()
                    self._transport.perform(self._take_away(unneeded, token))
                self._discard([token, *leftovers])
            kept = len(package_checks.package_names(self._root)) - (len(unneeded) if dry_run else 0)
        return PackageCollection(removed=unneeded, kept=kept, leftovers=leftovers)

    def staged(self, token: str) -> tuple[str, ...]:
        """Return the paths in `incoming` that a publication with this token has left there."""
        names = (token, f"{token}.json")
        return tuple(f"{INCOMING}/{name}" for name in names if os.path.lexists(self._root / INCOMING / name))

    def _leftovers(self) -> tuple[str, ...]:
        """Return the names in `incoming` that stopped attempts left: reservations of processes that are gone, and what they copied.

        The caller holds the lock, so that no reservation is half written.
        """
        try:
            names = sorted(os.listdir(self._root / INCOMING))
        except FileNotFoundError:
            return ()
        alive = {name.removesuffix(".json") for name in names if name.endswith(".json") and self._is_alive(name)}
        own = (release_layout.LOCK, release_layout.CLAIM)
        left = [name for name in names if not name.startswith(own) and name.removesuffix(".json") not in alive]
        return tuple(left)

    def _discard(self, names: Iterable[str]) -> None:
        """Remove names in `incoming` as far as possible; what stays is a leftover that the next publication removes.

        Another process may remove the same leftovers at the same time.
        """
        for name in names:
            shutil.rmtree(self._root / INCOMING / name, ignore_errors=True)
            with suppress(StepError):
                self._transport.perform([Remove(f"{INCOMING}/{name}")])

    def _unneeded(self) -> tuple[str, ...]:
        needed = package_checks.named_folders(self._root) | self._reserved()
        return tuple(name for name in package_checks.package_names(self._root) if name not in needed)

    def _reserved(self) -> frozenset[str]:
        """Return the folders that publications at work have reserved."""
        files = (path for path in (self._root / INCOMING).glob("*.json") if self._is_alive(path.name))
        reservations = (_reservation(path) for path in files)
        return frozenset(folder for reservation in reservations if reservation for folder in reservation.folders)

    def _is_alive(self, name: str) -> bool:
        path = self._root / INCOMING / name
        try:
            # the clock of the file server: the clocks of machines need not agree
            age = (self._root / INCOMING).stat().st_mtime - path.stat().st_mtime
        except OSError:
            return False
        reservation = _reservation(path)
        if reservation is None:
            return False
        holder = canonical(reservation.holder)
        return not release_lease.is_gone(Claimed(had=False, holder=holder, age=age), timeouts.PACKAGE_RESERVATION)

    def _take_away(self, folders: Iterable[str], token: str) -> Iterator[Operation]:
        """Yield the operations that take packages out of their place; a package loses its name before its first file goes."""
        yield MakeFolder(f"{INCOMING}/{token}")
        yield ConfirmLock(INCOMING, token)
        yield from (Move(f"{PACKAGES}/{name}", f"{INCOMING}/{token}/{name}") for name in folders)
        yield Sync(PACKAGES)

    @contextmanager
    def _locked(self, token: str, actor: str) -> Iterator[None]:
        """Hold the lock of the packages during the block. Waits for a moment: others hold it for a few renames."""
        deadline = self._clock.now() + timeouts.PACKAGE_LOCK
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(release_lease.hold_lease(self._transport, PACKAGES, token, actor))
                    break
                except StoreBusy as busy:
                    if busy.lapses or self._clock.now() >= deadline:
                        raise
                self._clock.pause(timeouts.PACKAGE_LOCK_POLL, deadline)
            yield

    def _refuse_other(self, checks: PackageChecks, package: PackageContent) -> None:
        if problems := checks.problems(package):
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            hint = (
                "nothing published is overwritten; `bringup stack verify` names all; once no version names it, `bringup stack gc`"
            )
            raise Refused(f"{self._root}: {problems[0].place} {problems[0].why}{more}", hint=hint)

    def _refuse_full(self, packages: Iterable[PackageContent]) -> None:
        needed, facts = sum(package.size for package in packages), os.statvfs(self._root)
        if needed > (room := facts.f_bavail * facts.f_frsize):
            raise failure("room", f"{needed / 1e6:.0f} MB of packages are missing, {room / 1e6:.0f} MB are free", str(self._root))

    def _copy_package(self, source: Path, package: PackageContent, staged: str) -> None:
        folder = self._root / staged / package.folder
        self._transport.perform([MakeFolder(f"{staged}/{package.folder}")])
        with naming(package.folder, str(self._root)):
            files = _copy_files(source, folder)
            data = package_files.encode(files)
            if package_files.digest(files) != package.content:
                raise BadTask(
                    f"{source} differs from the list in its manifest", hint="assemble the tree again: bringup stack build"
                )
            self._transport.perform([Put(f"{staged}/{package.folder}/{LISTING}", data, len(data))])
            _compare(folder, files)
            _flush_folders(folder)
        self._place(package, f"{staged}/{package.folder}")

    def _place(self, package: PackageContent, staged: str) -> None:
        """Give a copied package its place. If another publisher was faster, its package is compared, and this copy is dropped."""
        place = f"{PACKAGES}/{package.folder}"
        try:
            self._transport.perform([Sync(str(Path(staged).parent)), Move(staged, place), Sync(PACKAGES)])
        except StepError:
            if not os.path.lexists(self._root / place):
                raise
            self._refuse_other(PackageChecks(self._root), package)
            self._transport.perform([Remove(staged)])


def _reservation(path: Path) -> Reservation | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reservation)
    except (OSError, *UNREADABLE_JSON):
        return None


def _copy_files(source: Path, folder: Path) -> tuple[ListedFile, ...]:
    """Copy a package's files, links and folders into an empty folder, and return their list, with digests of the bytes read.

    Times are kept, because Python compares those of a module and of its bytecode.
    """
    entries = list(package_listing.list_names(source))
    for parent in sorted({part for file in entries for part in _folders(file)}):
        (folder / parent).mkdir()
        (folder / parent).chmod(_FOLDER)
    for file in entries:
        if file.link:
            os.symlink(file.link, folder / file.path)

    def copy(file: ListedFile) -> ListedFile:
        return file if file.link or file.folder else _copy_file(source / file.path, folder / file.path, file)

    with ThreadPoolExecutor(_COPIES) as pool:
        return tuple(pool.map(copy, entries))


def _folders(file: ListedFile) -> Iterator[str]:
    parts = Path(file.path).parts if file.folder else Path(file.path).parts[:-1]
    yield from ("/".join(parts[: depth + 1]) for depth in range(len(parts)))


def _copy_file(source: Path, target: Path, file: ListedFile) -> ListedFile:
    digest = hashlib.sha256()
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _FILE)
    with os.fdopen(handle, "wb") as stream, source.open("rb") as original:
        os.fchmod(handle, _PROGRAM if file.executable else _FILE)
        while part := original.read(_CHUNK):
            digest.update(part)
            stream.write(part)
        stream.flush()
        facts = os.fstat(original.fileno())
        os.utime(handle, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
        os.fsync(handle)
        size = stream.tell()
    return msgspec.structs.replace(file, digest=f"sha256:{digest.hexdigest()}", size=size)


def _compare(folder: Path, files: Iterable[ListedFile]) -> None:
    """Read copied files again. Raises BytesDiffer for the first that has other bytes than were written."""

    def differs(file: ListedFile) -> bool:
        return bool(file.digest) and package_listing.file_digest(folder / file.path) != file.digest

    listed = tuple(files)
    with ThreadPoolExecutor(_COPIES) as pool:
        for file, differing in zip(listed, pool.map(differs, listed), strict=True):
            if differing:
                raise failure("digest", f"{folder.name}/{file.path}", str(folder.parent))


def _flush_folders(folder: Path) -> None:
    """Flush the names in a folder and in all below it, the inner ones first."""
    for base, _, _ in os.walk(folder, topdown=False):
        handle = os.open(base, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # network file systems that refuse this flush on their server by themselves
                raise
        finally:
            os.close(handle)
