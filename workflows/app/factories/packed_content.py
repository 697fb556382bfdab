"""Content of packed files for the check of a factory's ways into production: archives, compressed files, initrds, packed roots.

Formats that nothing here unpacks raise PackedFileError, also within archives, as do damaged and encrypted parts: a search of their
packed bytes would find nothing, and prove nothing.
"""

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from steps.contract.plain_text import count
from steps.errors import StepError
from steps.nodeimage.files import squashfs_listing
from steps.nodeimage.layer import packed_streams
from steps.nodeimage.layer.packed_streams import TooMuch
from workflows.app.factories import initrd_segments
from workflows.app.factories.initrd_segments import MAGICS, SegmentDamage

MOST: Final = 2 << 30
"""Most unpacked bytes of one file; a file with more is not read."""
_HEAD: Final = packed_streams.HEAD
_SQUASHFS: Final = b"hsqs"
_INITRDS: Final = ("initrd", "initramfs")
_SIF: Final = slice(32, 41)
_EROFS: Final = slice(1024, 1028)
_INITRD_SECTION: Final = b".initrd\0"
_PE_OFFSET, _PE_HEADER, _PE_ENTRY = 0x3C, 24, 40
_PE_SECTIONS, _PE_OPTIONAL = slice(6, 8), slice(20, 22)
_CLOSED: Final = {
    b"\x04\x22\x4d\x18": "lz4",
    b"\x02\x21\x4c\x18": "lz4",
    b"\x5d\x00\x00": "lzma",
    b"\x89LZO": "lzop",
    b"\x1f\x9d": "compress",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!": "RAR",
    b"\xed\xab\xee\xdb": "RPM",
    b"!<arch>\ndebian": "Debian",
    b"QFI\xfb": "QCOW2",
    b"PACK\0": "Git",
    b"E=\xcd\x28": "cramfs",
}
"""First bytes of packed formats that are recognised and not unpacked, with their names."""


class PackedFileError(Exception):
    """Error for a packed file whose content cannot be read here."""


def is_packed(stream: IO[bytes]) -> bool:
    """Return True if a file, read from its start, is of a packed format; the stream is at its start again."""
    head = _head(stream)
    return packed_streams.is_packed(head) or head.startswith((_SQUASHFS, *MAGICS)) or bool(_closed(head))


def contents(path: Path, stream: io.BufferedReader) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (suffix of the place, stream) of each part of a packed file; read each before the next one.

    A squashfs gives the text files below its /etc, at any size. Raises PackedFileError for what cannot be unpacked, after
    the other parts.
    """
    head = _head(stream)
    if closed := _closed(head):
        raise PackedFileError(f"packed by {closed}, which this check does not unpack")
    reasons, meter = Counter[str](), _Meter()
    try:
        if head.startswith(_SQUASHFS):
            for place, text in squashfs_listing.read_settings(path).items():
                yield f":{place}", io.BytesIO(text.encode())
            return
        parts = _of_initrd(stream, reasons, "", 0) if head.startswith(MAGICS) else _unpacked(stream, reasons, "", 0)
        for place, part in parts:
            yield place, meter.counted(part)
    except TooMuch as error:
        raise PackedFileError(f"more than {MOST >> 30} GiB is packed in it") from error
    except StepError as error:
        raise PackedFileError(str(error)) from error
    if reasons:
        sentences = (f"{count(number, 'part')} in it {'is' if number == 1 else 'are'} {why}" for why, number in reasons.items())
        raise PackedFileError("; ".join(sentences))


def closed_initrd(name: str, stream: IO[bytes]) -> str:
    """Return why the initrd in a file of no packed format cannot be read; empty if there is none. `name` is the file's."""
    head = _head(stream)
    if head.startswith(b"MZ") and _INITRD_SECTION in _sections(stream):
        return "a unified kernel image, whose initrd this check does not unpack"
    if name.startswith(_INITRDS) and b"\0" in head:
        return "an initrd that is neither an archive nor packed in a known way"
    return ""


def _sections(stream: IO[bytes]) -> set[bytes]:
    """Return the names of the sections of an EFI program; the stream is at its start again.

    The table may lie behind a boot stub of any length, so its place is read from the headers, as firmware does
    (learn.microsoft.com/windows/win32/debug/pe-format).
    """
    try:
        stream.seek(_PE_OFFSET)
        stream.seek(int.from_bytes(stream.read(4), "little"))
        header = stream.read(_PE_HEADER)
        if not header.startswith(b"PE\0\0") or len(header) < _PE_HEADER:
            return set()
        number, optional = (int.from_bytes(header[place], "little") for place in (_PE_SECTIONS, _PE_OPTIONAL))
        stream.seek(optional, io.SEEK_CUR)
        table = stream.read(number * _PE_ENTRY)  # at most 2.6 MB, because the number has 16 bits
        return {table[place : place + 8] for place in range(0, len(table), _PE_ENTRY)}
    finally:
        stream.seek(0)


class _Meter:
    """Limit of the bytes of all parts of a file together, of which each may be small and packed a thousandfold."""

    def __init__(self) -> None:
        self._left = MOST

    def counted(self, part: IO[bytes]) -> IO[bytes]:
        """Return a part that subtracts what is read of it from the limit."""
        return io.BufferedReader(_MeteredPart(part, self))

    def take(self, size: int) -> None:
        """Subtract bytes from the limit. Raises TooMuch."""
        self._left -= size
        if self._left < 0:
            raise TooMuch


class _MeteredPart(io.RawIOBase):
    """Stream of a part that tells a meter what was read of it."""

    def __init__(self, part: IO[bytes], meter: _Meter) -> None:
        self._part, self._meter = part, meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # always a memoryview here
        data = self._part.read(len(buffer))
        self._meter.take(len(data))
        buffer[: len(data)] = data
        return len(data)


def _of_initrd(stream: io.BufferedReader, reasons: Counter[str], place: str, depth: int) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the names and contents of an initrd's plain archives, and what is packed in them and behind them.

    What lies behind them is another archive, packed, to the kernel; anything else there was not understood.
    """
    if depth > packed_streams.DEEPEST:
        raise TooMuch
    try:
        for part in initrd_segments.parts(stream):
            inside = f"{place}:{part.name}" if part.name else f"{place} (behind its archive)"
            if part.is_rest and not packed_streams.is_packed(part.content[:_HEAD]) and not _closed(part.content[:_HEAD]):
                reasons["neither an archive nor packed in a known way"] += 1
            yield inside, io.BytesIO(part.name.encode())
            yield from _unpacked(io.BytesIO(part.content), reasons, inside, depth + 1)
    except SegmentDamage as error:
        reasons[str(error)] += 1


def _unpacked(stream: IO[bytes], reasons: Counter[str], place: str, depth: int) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the parts of nested archives. Adds the number of those that could not be unpacked to `reasons`."""
    for part in packed_streams.inside(stream, MOST, reasons):
        if isinstance(part, io.BufferedReader):  # a file, and no name of one
            head = part.peek(_HEAD)
            if closed := "squashfs" if head.startswith(_SQUASHFS) else _closed(head):
                reasons[f"packed by {closed}, which is not unpacked there"] += 1
            elif head.startswith(MAGICS):
                yield from _of_initrd(part, reasons, place, depth + 1)
                continue
        yield place or " (unpacked)", part


def _head(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    head = stream.read(_HEAD)
    stream.seek(0)
    return head


def _closed(head: bytes) -> str:
    """Return the name of a packed format that is not unpacked; empty for all others."""
    if head[_SIF] == b"SIF_MAGIC":
        return "Singularity"
    if head[_EROFS] == b"\xe2\xe1\xf5\xe0":
        return "EROFS"
    return next((name for magic, name in _CLOSED.items() if head.startswith(magic)), "")
