"""What is packed in a file (gzip, bzip2, xz, zstd, tar, zip, one within another), as streams of bytes that are read once, in order.

Bounded: what unpacks to more than `MOST` bytes, or is packed deeper than `DEEPEST`, raises TooMuch. What is damaged ends early.
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
"""A packed archive counts twice, as a packed file and as an archive."""
AHEAD: Final = 1 << 30
"""A zip archive, whose list is at its end, is put aside before it is opened where it lies in another file; at most so much."""
IN_MEMORY: Final = 16 << 20
HEAD: Final = 512
"""Bytes that tell what a file is."""
_TAR_MARK: Final = slice(257, 262)
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_OPENERS: Final[dict[bytes, Callable[[IO[bytes]], IO[bytes]]]] = {
    b"\x1f\x8b\x08": lambda stream: cast(IO[bytes], gzip.GzipFile(fileobj=stream)),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
}
_DAMAGED: Final = (EOFError, OSError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""RuntimeError: a member of a zip archive is encrypted."""


class TooMuch(Exception):
    """More is packed there than can be looked at."""


class _Source(io.RawIOBase):
    """A stream whose head was read already; counts what it gives against what is left of a limit."""

    def __init__(self, head: bytes, rest: IO[bytes], left: list[int]) -> None:
        self._head, self._rest, self._left = head, rest, left

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # always a memoryview here
        """The head first, then the rest."""
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
    """Whether what begins so has something packed in it that is opened here."""
    return head.startswith((*_OPENERS, _ZSTD, _ZIP)) or head[_TAR_MARK] == b"ustar"


def inside(file: IO[bytes], most: int = MOST) -> Iterator[IO[bytes]]:
    """Streams of all that is packed in a file, and of names in archives; each is read before the next is asked for. Raises TooMuch;
    BadTask where the program is missing that unpacks it."""
    head = file.read(HEAD)
    file.seek(0)
    if head.startswith(_ZIP):
        yield from _guarded(_zip(file, [most], DEEPEST))
    else:
        yield from _opened(file, [most], DEEPEST)


def _opened(stream: IO[bytes], left: list[int], depth: int) -> Iterator[IO[bytes]]:
    """The stream itself where nothing is packed in it, else what is."""
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


def _guarded(found: Iterable[IO[bytes]]) -> Iterator[IO[bytes]]:
    with contextlib.suppress(*_DAMAGED):
        yield from found


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
    """All that a stream has, in a file."""
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as made:
        file = cast(IO[bytes], made)
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
    """Through the program: this Python has no zstd of its own."""
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
