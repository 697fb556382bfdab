"""Reader and editor of an initrd: `newc` archives in a row, plain or compressed, in the forms that the kernel takes."""

import hashlib
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients import program_streams
from steps.errors import BadTask

_MAGIC: Final = b"070701"
_HEADER: Final = 110
_TRAILER: Final = "TRAILER!!!"
_COMPRESSED: Final = (
    (b"\x28\xb5\x2f\xfd", ("zstd", "-dcq"), ("zstd", "-cq")),
    (b"\x1f\x8b", ("gzip", "-dc"), ("gzip", "-cn")),
    # kernels may lack CRC64, xz's own choice of a check, and know of lz4 only the legacy format
    (b"\xfd7zXZ", ("xz", "-dc"), ("xz", "-c", "--check=crc32")),
    (b"\x02\x21\x4c\x18", ("lz4", "-dc"), ("lz4", "-lc")),
)
"""Magic bytes of each compression, the command that unpacks it, and the command that packs it as the kernel takes it."""


class ArchiveMember(Struct, frozen=True):
    """One file, folder or link in an initrd; `digest` is the sha256 of a file's bytes or the target of a link.

    `links` is the number of names that the file has.
    """

    path: str
    mode: int
    links: int
    uid: int
    gid: int
    time: int
    size: int
    digest: str


def read(path: Path) -> list[ArchiveMember]:
    """Return all members of an initrd, in order. Raises BadTask if the file is damaged or no initrd."""
    data, members = path.read_bytes(), []
    # zeros may lie between archives (docs.kernel.org/driver-api/early-userspace/buffer-format.html)
    while data := data.lstrip(b"\0"):
        if data.startswith(_MAGIC):
            end = 0
            for at, member in _members(data, path.name):
                end = at
                if member:
                    members.append(member)
            data = data[end:]
        else:
            data, _ = _plain(data, path.name)
    return members


def plain_size(data: bytes, name: str) -> int:
    """Return the size of the uncompressed archives at the start of an initrd. Raises BadTask if one of them is cut off."""
    size = 0
    while data.startswith(_MAGIC, size):
        size += max(end for end, _ in _members(data[size:], name))
        gap = len(data) - size - len(data[size:].lstrip(b"\0"))
        size += gap if data.startswith(_MAGIC, size + gap) else 0
    return size


def without(path: Path, unwanted: str) -> bytes:
    """Return the bytes of an initrd without the members whose whole path matches the pattern; compression stays as it was.

    Raises BadTask if no member matches, because the test boot would then not differ.
    """
    kept, taken = _without(path.read_bytes(), path.name, re.compile(unwanted))
    if not taken:
        raise BadTask(f"{path.name} has nothing like {unwanted} that could be taken out")
    return kept


def _without(data: bytes, name: str, unwanted: re.Pattern[str]) -> tuple[bytes, int]:
    kept, taken = b"", 0
    while rest := data.lstrip(b"\0"):
        kept += data[: len(data) - len(rest)]
        if not rest.startswith(_MAGIC):
            plain, pack = _plain(rest, name)
            inner, more = _without(plain, name, unwanted)
            return kept + program_streams.through(pack, inner, timeouts.IMAGE_TOOL), taken + more
        begin, parts = 0, []
        for end, member in _members(rest, name):
            if member and unwanted.fullmatch(member.path):
                taken += 1
            else:
                parts.append(rest[begin:end])
            begin = end
        kept, data = kept + b"".join(parts), rest[begin:]
    return kept + data, taken


def _plain(data: bytes, name: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the uncompressed bytes, and the command that compresses them again. Raises BadTask."""
    for magic, unpack, pack in _COMPRESSED:
        if data.startswith(magic):
            try:
                return program_streams.through(unpack, data, timeouts.IMAGE_TOOL), pack
            except BadTask as error:
                raise BadTask(f"{name} is damaged or cut off: {error}", hint="build the image anew") from error
    raise BadTask(
        f"{name} is no initrd: neither a newc archive nor compressed by zstd, gzip, xz or lz4", hint="build the image anew"
    )


def _members(data: bytes, name: str) -> Iterator[tuple[int, ArchiveMember | None]]:
    """Yield for each archive member (offset in `data` of its end, member); for the trailer, which ends the archive, (offset, None).

    Raises BadTask if the archive has no trailer.
    """
    at = 0
    while data[at : at + 6] == _MAGIC and len(data) >= at + _HEADER:
        fields = [int(data[at + 6 + 8 * number : at + 14 + 8 * number], 16) for number in range(13)]
        mode, uid, gid, links, time, size, length = (*fields[1:7], fields[11])
        body = _aligned(at + _HEADER + length)
        path = data[at + _HEADER : at + _HEADER + length - 1].decode(errors="replace")
        at = _aligned(body + size)
        # the padding of the last member may be missing
        if at > len(data) + 3:
            break
        if path == _TRAILER:
            yield at, None
            return
        content = data[body : body + size]
        digest = content.decode(errors="replace") if stat.S_ISLNK(mode) else hashlib.sha256(content).hexdigest()
        yield at, ArchiveMember(path, mode, links, uid, gid, time, size, digest if size else "")
    raise BadTask(f"{name} is cut off: its archive has no end", hint="build the image anew")


def _aligned(place: int) -> int:
    return (place + 3) & ~3
