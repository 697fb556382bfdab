"""Streams of the bytes packed in a file (gzip, bzip2, xz, zstd, tar, zip, also nested), each read once and in order.

Bounded: TooMuch is raised for more than `MOST` unpacked bytes or more than `DEEPEST` levels. A damaged or encrypted part ends
early, and is counted by reason.
"""

import bz2
import contextlib
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from tarfile import HeaderError
from typing import IO, Final, Self, cast

from steps.errors import BadTask

MOST: Final = 8 << 30
DEEPEST: Final = 6
"""Most levels of nesting; a compressed archive counts twice."""
AHEAD: Final = 1 << 30
"""Most bytes of a nested zip archive, which is copied to a temporary file because its list is at its end."""
IN_MEMORY: Final = 16 << 20
HEAD: Final = 1028
"""Number of first bytes by which the type of a file is detected; the magic number of EROFS ends here, that of tar before."""
_CHUNK: Final = 1 << 16
_TAR_MARK: Final = slice(257, 262)
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_DAMAGED: Final = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""Errors of damaged files; RuntimeError is raised for an encrypted member of a zip archive, NotImplementedError for its method."""
_AT_END: Final = ("EOFHeaderError", "EmptyHeaderError", "SubsequentHeaderError")
"""Errors of tarfile, by the names that its stubs lack, for the end of an archive; the last is raised as ReadError by itself."""
DAMAGED: Final = "damaged or cut off"
ENCRYPTED: Final = "encrypted"
UNSUPPORTED: Final = "compressed by a method that is not supported"


class TooMuch(Exception):
    """Error: a file has more packed in it than may be read."""


class _CompressedStreams(io.RawIOBase):
    """Stream of the data of compressed streams in a row, with zeros between them. Raises an error for other bytes.

    BZ2File and LZMAFile end before such bytes as if there were none, so what lies behind the first stream would be hidden.
    """

    def __init__(self, packed: IO[bytes], start: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self._packed, self._start, self._codec = packed, start, start()
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # always a memoryview here
        if self._ended:
            return 0
        self._ended = True  # so that an error is raised, and counted, once
        plain = self._plain(len(buffer))
        self._ended = not plain
        buffer[: len(plain)] = plain
        return len(plain)

    def _plain(self, most: int) -> bytes:
        """Return some unpacked bytes; none at the end. Raises EOFError, OSError or LZMAError for a damaged stream."""
        while True:
            data = b""
            if self._codec.eof:
                if not (data := self._next()):
                    return b""
                self._codec = self._start()
            elif self._codec.needs_input and not (data := _read(self._packed, _CHUNK)):
                raise EOFError("a compressed stream has no end")
            if plain := self._codec.decompress(data, most):
                return plain

    def _next(self) -> bytes:
        """Return the first bytes of the next stream; empty at the end."""
        data = self._codec.unused_data.lstrip(b"\0")
        while not data and (more := _read(self._packed, _CHUNK)):
            data = more.lstrip(b"\0")
        return data


_OPENERS: Final[dict[bytes, Callable[[IO[bytes]], IO[bytes]]]] = {
    b"\x1f\x8b\x08": lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream)),
    b"BZh": lambda stream: cast(IO[bytes], _CompressedStreams(stream, bz2.BZ2Decompressor)),
    b"\xfd7zXZ\0": lambda stream: cast(IO[bytes], _CompressedStreams(stream, lzma.LZMADecompressor)),
}


class _Unpacking:
    """Limit of the bytes that may still be unpacked of a file, and counts of its parts that ended early, by reason."""

    def __init__(self, left: int, damage: Counter[str]) -> None:
        self._left, self._damage = left, damage

    def take(self, size: int) -> None:
        """Subtract bytes from the limit. Raises TooMuch."""
        self._left -= size
        if self._left < 0:
            raise TooMuch

    def note(self, error: Exception | None = None) -> None:
        """Count a part that ended early by this error."""
        unsupported = isinstance(error, NotImplementedError)
        self._damage[UNSUPPORTED if unsupported else ENCRYPTED if isinstance(error, RuntimeError) else DAMAGED] += 1

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Suppress and count the errors of damaged files."""
        try:
            yield
        except _DAMAGED as error:
            self.note(error)


class _Source(io.RawIOBase):
    """Stream of `head`, which was read already, and the `rest`; it raises TooMuch beyond the limit, and ends early if damaged."""

    def __init__(self, head: bytes, rest: IO[bytes], unpacking: _Unpacking) -> None:
        self._head, self._rest, self._unpacking = head, rest, unpacking

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # always a memoryview here
        data = self._head[: len(buffer)]
        if not data:
            try:
                data = _read(self._rest, len(buffer))
            except _DAMAGED as error:
                self._unpacking.note(error)
                self._rest = io.BytesIO()
        self._head = self._head[len(buffer) :]
        self._unpacking.take(len(data))
        buffer[: len(data)] = data
        return len(data)


def _read(stream: IO[bytes], size: int) -> bytes:
    """Return some bytes, none at the end. A full `read` loses those before a damage, which it meets when it fills its buffer."""
    read1 = getattr(stream, "read1", stream.read)
    return cast(bytes, read1(size))


class _StrictTarInfo(tarfile.TarInfo):
    """Header of a member of an archive. A damaged one is an error: tarfile takes it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        """Return the next header. Raises EOFError if it is damaged or cut off."""
        try:
            return super().fromtarfile(tarfile)
        except HeaderError as error:
            if type(error).__name__ in _AT_END:
                raise
            raise EOFError(str(error)) from error


def is_packed(head: bytes) -> bool:
    """Return True if a file with these first bytes is of a type that this module unpacks."""
    return head.startswith((*_OPENERS, _ZSTD, _ZIP)) or head[_TAR_MARK] == b"ustar"


def inside(file: IO[bytes], most: int = MOST, damage: Counter[str] | None = None) -> Iterator[IO[bytes]]:
    """Yield a stream for each packed file, and one for the names in each archive. Read each stream before the next one.

    A file's stream is an io.BufferedReader, so its first HEAD bytes can be peeked at. `damage` counts the parts that ended early
    or were not unpacked, by reason. Raises TooMuch, and BadTask if the program zstd is needed and missing.
    """
    head = file.read(HEAD)
    file.seek(0)
    unpacking = _Unpacking(most, Counter() if damage is None else damage)
    if head.startswith(_ZIP):
        yield from _zip(file, unpacking, DEEPEST)
    else:
        yield from _opened(file, unpacking, DEEPEST)


def _opened(stream: IO[bytes], unpacking: _Unpacking, depth: int) -> Iterator[IO[bytes]]:
    """Yield the stream itself if it is not packed, else the streams of what is packed in it."""
    head = b""
    with unpacking.guarded():
        while len(head) < HEAD and (more := _read(stream, HEAD - len(head))):
            head += more
    whole = io.BufferedReader(_Source(head, stream, unpacking))
    if not is_packed(head):
        yield whole
        return
    if not depth:
        raise TooMuch
    if head.startswith(_ZIP):
        with _aside(whole) as file:
            yield file
            file.seek(0)
            yield from _zip(file, unpacking, depth)
    elif head.startswith(_ZSTD):
        with _zstd(whole, unpacking) as inner:
            yield from _opened(inner, unpacking, depth - 1)
    elif head[_TAR_MARK] == b"ustar":
        yield from _tar(whole, unpacking, depth)
    else:
        opener = next(opener for mark, opener in _OPENERS.items() if head.startswith(mark))
        yield from _opened(opener(whole), unpacking, depth - 1)


def _tar(stream: IO[bytes], unpacking: _Unpacking, depth: int) -> Iterator[IO[bytes]]:
    """Yield the names and files of an archive, and what lies behind its end."""
    with unpacking.guarded(), tarfile.open(fileobj=stream, mode="r|", tarinfo=_StrictTarInfo) as archive:
        for member in archive:
            words = (member.name, member.linkname, *map(str, member.pax_headers.values()))
            yield io.BytesIO("\0".join(words).encode(errors="surrogateescape"))
            data = archive.extractfile(member) if member.isfile() else None
            if data is not None:
                yield from _opened(data, unpacking, depth - 1)
    yield stream


@contextlib.contextmanager
def _aside(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy a whole stream to a temporary file and yield that. Raises TooMuch if it is larger than AHEAD or the disk is full."""
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as spooled:
        file = cast(IO[bytes], spooled)
        while data := stream.read(1 << 20):
            if file.tell() + len(data) > AHEAD:
                raise TooMuch
            try:
                file.write(data)
            except OSError as error:  # no room for it here: the archive is not damaged, and was not searched
                raise TooMuch from error
        file.seek(0)
        yield file


def _zip(file: IO[bytes], unpacking: _Unpacking, depth: int) -> Iterator[IO[bytes]]:
    """Yield the names and files of an archive; a member that cannot be unpacked does not hide the others."""
    with unpacking.guarded(), zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            yield io.BytesIO(member.filename.encode(errors="replace") + b"\0" + member.comment)
            with unpacking.guarded(), archive.open(member) as data:
                yield from _opened(data, unpacking, depth - 1)


@contextlib.contextmanager
def _zstd(stream: IO[bytes], unpacking: _Unpacking) -> Iterator[IO[bytes]]:
    """Yield the unpacked stream of zstd data, unpacked by the program zstd because Python 3.11 has no module for it."""
    words = ["zstd", "--decompress", "--stdout", "--quiet", "--no-progress"]
    try:
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise BadTask("zstd is not installed, and a file of the layer is packed by it", hint="install zstd") from error
    assert child.stdin
    assert child.stdout
    fed: list[TooMuch] = []
    feeder = threading.Thread(target=_feed, args=(stream, child.stdin, fed))
    feeder.start()
    try:
        yield child.stdout
        # only at the end of its output does its exit code tell of the data
        if not child.stdout.read(1) and child.wait():
            unpacking.note()
    finally:
        child.kill()
        child.stdout.close()
        feeder.join()
        child.wait()
    if fed:
        raise fed[0]


def _feed(stream: IO[bytes], into: IO[bytes], fed: list[TooMuch]) -> None:
    try:
        with contextlib.suppress(*_DAMAGED), into:
            shutil.copyfileobj(stream, into)
    except TooMuch as error:
        fed.append(error)
