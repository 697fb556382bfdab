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
from steps.nodeimage.files import initrd_archive, squashfs_listing
from steps.nodeimage.layer import packed_streams
from steps.nodeimage.layer.packed_streams import TooMuch

MOST: Final = 2 << 30
"""Most unpacked bytes of one file; a file with more is not read."""
LARGEST_INITRD: Final = 256 << 20
_HEAD: Final = packed_streams.HEAD
_SQUASHFS: Final = b"hsqs"
_NEWC: Final = b"070701"
_SIF: Final = slice(32, 41)
_EROFS: Final = slice(1024, 1028)
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
    return packed_streams.is_packed(head) or head.startswith((_SQUASHFS, _NEWC)) or bool(_closed(head))


def contents(path: Path, stream: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (suffix of the place, stream) of each part of a packed file; read each before the next one.

    A squashfs gives the text files below its /etc, at any size. Raises PackedFileError for what cannot be unpacked, after
    the other parts.
    """
    head = _head(stream)
    if closed := _closed(head):
        raise PackedFileError(f"packed by {closed}, which this check does not unpack")
    try:
        if head.startswith(_SQUASHFS):
            for place, text in squashfs_listing.read_settings(path).items():
                yield f":{place}", io.BytesIO(text.encode())
        elif head.startswith(_NEWC):
            yield from _of_initrd(path)
        else:
            yield from _unpacked(stream)
    except TooMuch as error:
        raise PackedFileError(f"more than {MOST >> 30} GiB is packed in it") from error
    except StepError as error:
        raise PackedFileError(str(error)) from error
    except ValueError as error:
        raise PackedFileError("the header of an archive in it is damaged") from error


def _of_initrd(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the plain archives at the start of an initrd, and what is packed behind them."""
    if path.stat().st_size > LARGEST_INITRD:
        raise PackedFileError(f"an archive larger than {LARGEST_INITRD >> 20} MiB")
    data = path.read_bytes()
    size = initrd_archive.plain_size(data, path.name)
    yield "", io.BytesIO(data[:size])
    # zeros may lie between archives
    if rest := data[size:].lstrip(b"\0"):
        if closed := _closed(rest[:_HEAD]):
            raise PackedFileError(f"its second archive is packed by {closed}, which this check does not unpack")
        yield from _unpacked(io.BytesIO(rest))


def _unpacked(stream: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the parts of nested archives. Raises PackedFileError at the end if some of them could not be unpacked."""
    reasons = Counter[str]()
    for part in packed_streams.inside(stream, MOST, reasons):
        if isinstance(part, io.BufferedReader):  # a file, and no name of one
            head = part.peek(_HEAD)
            if closed := "squashfs" if head.startswith(_SQUASHFS) else _closed(head):
                reasons[f"packed by {closed}, which is not unpacked there"] += 1
        yield " (unpacked)", part
    if reasons:
        raise PackedFileError("; ".join(f"{count(number, 'part')} in it {reason}" for reason, number in reasons.items()))


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
