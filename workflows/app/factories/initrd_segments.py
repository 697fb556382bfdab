"""Members of an initrd, read in one pass: `newc` archives in a row, with zeros between them, and what lies behind them.

The kernel's format is described in docs.kernel.org/driver-api/early-userspace/buffer-format.html. An early archive with microcode
comes first, as it is; the main one behind it may be compressed by anything. A reader that stops at the first end has seen nothing.
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAGICS: Final = (b"070701", b"070702")
"""First bytes of an archive in the format newc, without and with checksums; the kernel takes no other."""
LARGEST: Final = 256 << 20
"""Most bytes of a member, and of what lies behind the plain archives, that are held in memory."""
_FIELDS: Final = re.compile(rb"(?:[0-9A-Fa-f]{8}){13}")
_SIZE, _NAME_SIZE = slice(48, 56), slice(88, 96)
"""Places of a member's size and of its name's size among the hexadecimal fields of its header."""
_LONGEST_NAME: Final = 4096
_TRAILER: Final = b"TRAILER!!!"


class SegmentDamage(Exception):
    """Error for an archive that cannot be read to its end; its message completes "a part is …"."""


@dataclass(frozen=True)
class InitrdPart:
    """One member of an archive with its content, or the `rest` behind the plain archives, which has no name."""

    name: str
    content: bytes
    is_rest: bool = False


def parts(stream: io.BufferedReader) -> Iterator[InitrdPart]:
    """Yield the members of the plain archives at the start of an initrd, then its rest. Raises SegmentDamage after the others."""
    is_open = False
    while magic := _after_zeros(stream):
        if magic not in MAGICS:
            yield InitrdPart("", magic + _bounded(stream, LARGEST), is_rest=True)
            if is_open:
                raise SegmentDamage("behind a damaged header")
            return
        name, content = _member(stream)
        is_open = name != _TRAILER
        if is_open:
            yield InitrdPart(name.decode(errors="replace"), content)
    if is_open:
        raise SegmentDamage("damaged or cut off")


def _after_zeros(stream: io.BufferedReader) -> bytes:
    """Return the first bytes that are not zero, as many as a magic number has; empty at the end."""
    while peeked := stream.peek(1):
        zeros = len(peeked) - len(peeked.lstrip(b"\0"))
        stream.read(zeros)
        if zeros < len(peeked):
            return stream.read(len(MAGICS[0]))
    return b""


def _member(stream: io.BufferedReader) -> tuple[bytes, bytes]:
    """Return name and content of the member whose magic number was read. Raises SegmentDamage."""
    fields = stream.read(104)
    if len(fields) < 104:
        raise SegmentDamage("damaged or cut off")
    if not _FIELDS.fullmatch(fields):
        raise SegmentDamage("behind a damaged header")
    size, length = int(fields[_SIZE], 16), int(fields[_NAME_SIZE], 16)
    if not 0 < length <= _LONGEST_NAME:
        raise SegmentDamage("behind a damaged header")
    # header and name together end at a multiple of four, as the content does
    name = _whole(stream, length).rstrip(b"\0")
    stream.read(-(110 + length) % 4)
    if size > LARGEST:
        raise SegmentDamage(f"larger than {LARGEST >> 20} MiB")
    content = _whole(stream, size)
    stream.read(-size % 4)
    return name, content


def _whole(stream: io.BufferedReader, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise SegmentDamage("damaged or cut off")
    return data


def _bounded(stream: io.BufferedReader, most: int) -> bytes:
    data = stream.read(most + 1)
    if len(data) > most:
        raise SegmentDamage(f"larger than {most >> 20} MiB")
    return data
