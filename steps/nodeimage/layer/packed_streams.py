"""Streams of the bytes packed in a file (gzip, bzip2, xz, zstd, tar, zip, also nested), each read once and in order.

Bounded: TooMuch is raised for more than `MOST` unpacked bytes or more than `DEEPEST` levels. A damaged file ends early.
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
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Final, cast

from steps.errors import BadTask

MOST: Final = 8 << 30
DEEPEST: Final = 6
"""Most levels of nesting; a compressed archive counts twice."""
AHEAD: Final = 1 << 30
"""Most bytes of a nested zip archive, which is copied to a temporary file because its list is at its end."""
IN_MEMORY: Final = 16 << 20
HEAD: Final = 512
"""Number of first bytes by which the type of a file is detected."""
_TAR_MARK: Final = slice(257, 262)
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_OPENERS: Final[dict[bytes, Callable[[IO[bytes]], IO[bytes]]]] = {
    b"\x1f\x8b\x08": lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream)),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_DAMAGED: Final = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""Errors of damaged files; RuntimeError is raised for an encrypted member of a zip archive."""


class TooMuch(Exception):
    """Error: a file has more packed in it than may be read."""


class _Source(io.RawIOBase):
    """Stream of `head`, which was read already, and the `rest`; it subtracts its bytes from the limit `left` and raises TooMuch."""

    def __init__(self, head: bytes, rest: IO[bytes], left: list[int]) -> None:
        self._head, self._rest, self._left = head, rest, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # always a memoryview here
        data = self._head[: len(buffer)]
        if not data:
            with contextlib.suppress(*_DAMAGED):
                data = self._rest.read(len(buffer))
        self._head = self._head[len(buffer) :]
        self._left[0] -= len(data)
        if self._left[0] < 0:
            raise TooMuch
        buffer[: len(data)] = data
        return len(data)


def is_packed(head: bytes) -> bool:
    """Return True if a file with these first bytes is of a type that this module unpacks."""
    return head.startswith((*_OPENERS, _ZSTD, _ZIP)) or head[_TAR_MARK] == b"ustar"


def inside(file: IO[bytes], most: int = MOST) -> Iterator[IO[bytes]]:
    """Yield a stream for each file that is packed in a file, and for the names in archives; read each before the next one.

    Raises TooMuch, and BadTask if the program zstd is needed and missing.
    """
    head = file.read(HEAD)
    file.seek(0)
    if head.startswith(_ZIP):
        yield from _guarded(_zip(file, [most], DEEPEST))
    else:
        yield from _opened(file, [most], DEEPEST)


def _opened(stream: IO[bytes], left: list[int], depth: int) -> Iterator[IO[bytes]]:
    """Yield the stream itself if it is not packed, else the streams of what is packed in it. `left` is the limit of bytes."""
    head = b""
    with contextlib.suppress(*_DAMAGED):
        while len(head) < HEAD and (more := stream.read(HEAD - len(head))):
            head += more
    whole = io.BufferedReader(_Source(head, stream, left))
    if not is_packed(head):
        yield whole
        return
    if not depth:
        raise TooMuch
    if head.startswith(_ZIP):
        with _aside(whole) as file:
            yield file
            file.seek(0)
            yield from _guarded(_zip(file, left, depth))
    elif head.startswith(_ZSTD):
        with _zstd(whole) as inner:
            yield from _opened(inner, left, depth - 1)
    elif head[_TAR_MARK] == b"ustar":
        yield from _guarded(_tar(whole, left, depth))
    else:
        opener = next(opener for mark, opener in _OPENERS.items() if head.startswith(mark))
        yield from _opened(opener(whole), left, depth - 1)


def _guarded(streams: Iterable[IO[bytes]]) -> Iterator[IO[bytes]]:
    with contextlib.suppress(*_DAMAGED):
        yield from streams


def _tar(stream: IO[bytes], left: list[int], depth: int) -> Iterator[IO[bytes]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            words = (member.name, member.linkname, *map(str, member.pax_headers.values()))
            yield io.BytesIO("\0".join(words).encode(errors="surrogateescape"))
            data = archive.extractfile(member) if member.isfile() else None
            if data is not None:
                yield from _opened(data, left, depth - 1)


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


def _zip(file: IO[bytes], left: list[int], depth: int) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            yield io.BytesIO(member.filename.encode(errors="replace") + b"\0" + member.comment)
            with archive.open(member) as data:
                yield from _opened(data, left, depth - 1)


@contextlib.contextmanager
def _zstd(stream: IO[bytes]) -> Iterator[IO[bytes]]:
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
