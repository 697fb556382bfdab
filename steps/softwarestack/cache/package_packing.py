"""Archives of installed packages: tar in zstd, equal bytes for equal content; a hostile archive is refused when it is unpacked.

An archive has two folders: `prefix`, the files of ROOT/packages/NAME-VERSION-HASH12, and `modules`, the package's module files
below the folder of modules. Module files name that folder, which differs between stacks, so a placeholder stands for it.
Owners, times, setuid bits and ACLs do not travel; of the modes only "executable" does, because everybody may read a package.
"""

import contextlib
import io
import os
import shutil
import stat
import struct
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from msgspec import Struct

from steps.clients import program_streams
from steps.errors import BadTask

PREFIX: Final = "prefix"
MODULES: Final = "modules"
"""Names of the two folders in an archive."""
PLACEHOLDER: Final = b"@BRINGUP_MODULES@"
"""Text that stands for the folder of modules in the module files of an archive."""
MTIME: Final = 315_619_200
"""Time of every packed file: 2 January 1980 (UTC), because zip archives know no earlier time."""
MOST_MEMBERS: Final = 2_000_000
MOST_BYTES: Final = 128 << 30
"""Limits of one package: a CUDA toolkit has 10 GB, an Anaconda 400,000 files."""
LARGEST_MODULE: Final = 4 << 20
"""Limit of a module file in bytes."""
_HEADERS: Final = 16 << 10
"""Most bytes in a tar archive beside a member's content: two headers, padding, and its path and link, of 4 kB each."""
_END: Final = 64 << 10
"""Most bytes at the end of a tar archive (10 kB), and of zstd beside its blocks."""
_PACK: Final = ("zstd", "-3", "-T0", "-q", "-c")
_UNPACK: Final = ("zstd", "-d", "-q", "-c")
_PYC_HEADER: Final = 16


class PackingError(ValueError):
    """Error: what was installed cannot travel in an archive, or an archive is not one that this module makes."""


class PackedContent(Struct, frozen=True, kw_only=True):
    """Content of an archive: paths of its module files below the folder of modules, number of members, bytes of all files."""

    modules: tuple[str, ...]
    members: int
    size: int


def pack(
    prefix: Path | None, modules: Path, names: Iterable[str], *, place: str, modules_root: str, out: IO[bytes]
) -> PackedContent:
    """Write the archive of a package, and return its content.

    `prefix` is the folder with its files (None: it has only module files), `names` are its module files below `modules`. `place` is
    the package's published path, `modules_root` that of the folder of modules. Raises PackingError for a link that leads out of the
    package to anything but another package, and for devices, pipes and sockets.
    """
    names, written = tuple(sorted(names)), [0, 0]
    with program_streams.into(_PACK, out) as pipe, tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        if prefix is not None:
            inodes = dict[tuple[int, int], str]()
            for path, facts in _walk(prefix):
                _add(archive, prefix, path, facts, place, inodes, written)
        for name in names:
            _add_module(archive, modules, name, modules_root, written)
    return PackedContent(modules=names, members=written[0], size=written[1])


def largest_archive(members: int, size: int) -> int:
    """Return the most bytes of the archive of a package with so many members, whose files have `size` bytes.

    zstd adds less than a 256th to what it cannot compress (ZSTD_COMPRESSBOUND in
    https://github.com/facebook/zstd/blob/dev/lib/zstd.h).
    """
    plain = size + members * _HEADERS + _END
    return plain + (plain >> 8)


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and facts of the folder and of everything below it, in an order that depends on names alone."""
    waiting = [""]
    while waiting:
        path = waiting.pop()
        facts = (folder / path).lstat()
        yield path, facts
        if stat.S_ISDIR(facts.st_mode):
            children = sorted(os.listdir(folder / path), key=os.fsencode, reverse=True)
            waiting += [f"{path}/{name}" if path else name for name in children]


def _member(name: str, kind: bytes, *, executable: bool = False) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = 0o755 if executable or kind == tarfile.DIRTYPE else 0o644
    member.mtime = MTIME
    return member


def _add(
    archive: tarfile.TarFile,
    prefix: Path,
    path: str,
    facts: os.stat_result,
    place: str,
    inodes: dict[tuple[int, int], str],
    written: list[int],
) -> None:
    name, source = f"{PREFIX}/{path}".rstrip("/"), prefix / path
    written[0] += 1
    if stat.S_ISDIR(facts.st_mode):
        archive.addfile(_member(name, tarfile.DIRTYPE))
    elif stat.S_ISLNK(facts.st_mode):
        link = _member(name, tarfile.SYMTYPE)
        link.linkname = os.readlink(source)
        if problem := link_problem(path, link.linkname, place):
            raise PackingError(f"{path} {problem}")
        archive.addfile(link)
    elif not stat.S_ISREG(facts.st_mode):
        raise PackingError(f"{path} is no file, folder or symbolic link")
    elif (first := inodes.setdefault((facts.st_dev, facts.st_ino), name)) != name:
        copy = _member(name, tarfile.LNKTYPE)
        copy.linkname = first
        archive.addfile(copy)
    else:
        file = _member(name, tarfile.REGTYPE, executable=bool(facts.st_mode & 0o111))
        file.size = facts.st_size
        written[1] += facts.st_size
        with source.open("rb") as stream:
            archive.addfile(file, stream)


def _add_module(archive: tarfile.TarFile, modules: Path, name: str, modules_root: str, written: list[int]) -> None:
    source = modules / name
    if source.is_symlink() or not source.is_file() or source.stat().st_size > LARGEST_MODULE:
        raise PackingError(f"module file {name} is no file, or has more than {LARGEST_MODULE >> 20} MiB")
    data = source.read_bytes()
    if PLACEHOLDER in data:
        raise PackingError(f"module file {name} contains {PLACEHOLDER.decode()}, which stands for the folder of modules")
    data = data.replace(modules_root.encode(), PLACEHOLDER)
    file = _member(f"{MODULES}/{name}", tarfile.REGTYPE)
    file.size = len(data)
    written[0] += 1
    written[1] += len(data)
    archive.addfile(file, io.BytesIO(data))


def link_problem(path: str, target: str, place: str) -> str:
    """Return why a symbolic link of a package may not travel; empty if it may.

    `path` is relative to the package, `place` is the package's published path. A link may lead to a place within the package, and
    by an absolute path to another package of the same root.
    """
    packages = os.path.dirname(place)
    if target.startswith("/"):
        whole = os.path.normpath(target)
        return "" if whole.startswith(f"{packages}/") else f"links to {target[:200]!r}, which is outside of {packages}"
    whole = os.path.normpath(os.path.join(place, os.path.dirname(path), target))
    return "" if whole == place or whole.startswith(f"{place}/") else f"links to {target[:200]!r}, which leads out of the package"


def settle_bytecode(prefix: Path) -> None:
    """Set the time of the source in Python bytecode to MTIME, which the source gets when the package is unpacked.

    Otherwise Python would take all bytecode for outdated, and compile each module whenever it is imported.
    """
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".pyc") and stat.S_ISREG(os.lstat(path).st_mode):
                _settle(path)


def _settle(path: str) -> None:
    mode = os.stat(path).st_mode
    os.chmod(path, mode | stat.S_IWUSR | stat.S_IRUSR)
    with open(path, "r+b") as file:
        header = file.read(_PYC_HEADER)
        # flags 0: checked by the time of the source; other flags by its hash, or never (PEP 552)
        if len(header) == _PYC_HEADER and header[4:8] == bytes(4) and header[2:4] == b"\r\n":
            file.seek(8)
            file.write(struct.pack("<I", MTIME))


def unpack(archive: IO[bytes], folder: Path, *, place: str, most: int = MOST_BYTES) -> PackedContent:
    """Unpack an archive into an empty folder, which gets `prefix` and `modules`, and return its content.

    Module files keep the placeholder (see `install_modules`). Raises PackingError for everything that `pack` does not write:
    absolute paths, paths with `..`, links that lead out, devices, names that come twice, more than `most` bytes. No path is
    followed through a link of the archive.
    """
    made = _Unpacked(folder, place, most)
    try:
        with program_streams.feed(_UNPACK, archive) as plain, tarfile.open(fileobj=plain, mode="r|") as members:
            for member in members:
                made.add(members, member)
    except (tarfile.TarError, EOFError) as error:
        raise PackingError(f"it is no tar archive, or cut off: {error}") from error
    except (FileExistsError, NotADirectoryError) as error:
        raise PackingError(f"{error.filename} is a file and a folder") from error
    except BadTask as error:
        raise PackingError(f"it cannot be decompressed: {error}") from error
    return PackedContent(modules=tuple(sorted(made.modules)), members=made.members, size=made.size)


class _Unpacked:
    """Files that were unpacked so far; parents of a member must be folders made here, so that no link is followed."""

    def __init__(self, folder: Path, place: str, most: int) -> None:
        self._folder, self._place, self._most = folder, place, most
        self._folders, self._files, self._names = set[str](), set[str](), set[str]()
        self.modules = list[str]()
        self.members = self.size = 0

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Unpack one member. Raises PackingError."""
        name = member.name
        self._check(name, member)
        self.members += 1
        self.size += member.size if member.isreg() else 0
        if self.members > MOST_MEMBERS or self.size > self._most:
            raise PackingError(f"it has more than {min(self._most, MOST_BYTES)} bytes or {MOST_MEMBERS} members")
        self._names.add(name)
        self._write(archive, member)

    def _check(self, name: str, member: tarfile.TarInfo) -> None:
        parts = name.split("/")
        if parts[0] not in (PREFIX, MODULES) or any(part in ("", ".", "..") for part in parts) or "\0" in name:
            raise PackingError(f"member {name[:200]!r} is no path in {PREFIX} or {MODULES}")
        if name in self._names:
            raise PackingError(f"member {name[:200]!r} comes twice")
        if parts[0] == MODULES:
            if not member.isreg() or len(parts) < 2 or member.size > LARGEST_MODULE:
                raise PackingError(f"module file {name[:200]!r} is no file, or has more than {LARGEST_MODULE >> 20} MiB")
        elif len(parts) == 1 and not member.isdir():
            raise PackingError(f"member {PREFIX} is no folder")
        elif len(parts) > 1 and str(PurePosixPath(name).parent) not in self._folders:
            raise PackingError(f"member {name[:200]!r} comes before its folder")

    def _write(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name, path = member.name, self._folder / member.name
        if member.isdir():
            path.mkdir()
            path.chmod(0o755)  # whatever the umask
            self._folders.add(name)
        elif member.issym():
            if problem := link_problem(name.removeprefix(f"{PREFIX}/"), member.linkname, self._place):
                raise PackingError(f"{name[:200]!r} {problem}")
            path.symlink_to(member.linkname)
        elif member.islnk():
            if member.linkname not in self._files:
                raise PackingError(f"{name[:200]!r} is a hard link to {member.linkname[:200]!r}, which is no file before it")
            os.link(self._folder / member.linkname, path)
            self._files.add(name)
        elif member.isreg():
            self._write_file(archive, member, path)
        else:
            raise PackingError(f"member {name[:200]!r} is no file, folder or link")

    def _write_file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        if member.name.startswith(f"{MODULES}/"):
            self.modules.append(member.name.removeprefix(f"{MODULES}/"))
            path.parent.mkdir(parents=True, exist_ok=True)
        data = archive.extractfile(member)
        if data is None or member.issparse():
            raise PackingError(f"member {member.name[:200]!r} has no plain content")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o755 if member.mode & 0o111 else 0o644)
            shutil.copyfileobj(data, file, 1 << 20)
            file.flush()
            if file.tell() != member.size:
                raise PackingError(f"member {member.name[:200]!r} is cut off")
            os.utime(handle, (MTIME, MTIME))
        self._files.add(member.name)


def install_modules(unpacked: Path, names: Iterable[str], modules: Path, modules_root: str) -> None:
    """Write the module files of an unpacked package below the folder `modules`, with `modules_root` in place of the placeholder.

    `modules_root` is the path at which users see that folder. Existing files are replaced.
    """
    for name in names:
        target = modules / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            target.unlink()
        target.write_bytes((unpacked / MODULES / name).read_bytes().replace(PLACEHOLDER, modules_root.encode()))
        os.utime(target, (MTIME, MTIME))
