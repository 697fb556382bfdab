"""Reads an initrd: `newc` archives one behind the other, plain or compressed, as the kernel takes them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients.image import streams
from steps.errors import BadTask

_MAGIC: Final = b"070701"
_HEADER: Final = 110
_TRAILER: Final = "TRAILER!!!"
_COMPRESSED: Final = (
    (b"\x28\xb5\x2f\xfd", ("zstd", "-dcq")),
    (b"\x1f\x8b", ("gzip", "-dc")),
    (b"\xfd7zXZ", ("xz", "-dc")),
    (b"\x02\x21\x4c\x18", ("lz4", "-dc")),
)


class Member(Struct, frozen=True):
    """One member; `digest` is the sha256 of a file's bytes or the target of a link, `links` the number of its names."""

    path: str
    mode: int
    links: int
    uid: int
    gid: int
    time: int
    size: int
    digest: str


def read(path: Path) -> list[Member]:
    """All members of an initrd, in their order. Raises BadTask where it is none."""
    data, found = path.read_bytes(), []
    while data := data.lstrip(b"\0"):
        if data.startswith(_MAGIC):
            end = 0
            for at, member in _members(data, path.name):
                end = at
                if member:
                    found.append(member)
            data = data[end:]
        else:
            data = _plain(data, path.name)
    return found


def _plain(data: bytes, name: str) -> bytes:
    for magic, command in _COMPRESSED:
        if data.startswith(magic):
            try:
                return streams.through(command, data, timeouts.IMAGE_TOOL)
            except BadTask as error:
                raise BadTask(f"{name} is damaged or cut off: {error}", hint="build the image anew") from error
    raise BadTask(
        f"{name} is no initrd: neither a newc archive nor compressed by zstd, gzip, xz or lz4", hint="build the image anew"
    )


def _members(data: bytes, name: str) -> Iterator[tuple[int, Member | None]]:
    """Members with the place behind each; the trailer as None."""
    at = 0
    while data[at : at + 6] == _MAGIC and len(data) >= at + _HEADER:
        fields = [int(data[at + 6 + 8 * number : at + 14 + 8 * number], 16) for number in range(13)]
        mode, uid, gid, links, time, size, length = (*fields[1:7], fields[11])
        body = _aligned(at + _HEADER + length)
        path = data[at + _HEADER : at + _HEADER + length - 1].decode(errors="replace")
        at = _aligned(body + size)
        if at > len(data) + 3:
            break
        if path == _TRAILER:
            yield at, None
            return
        content = data[body : body + size]
        linked = mode & 0o170000 == 0o120000
        said = content.decode(errors="replace") if linked else hashlib.sha256(content).hexdigest()
        yield at, Member(path, mode, links, uid, gid, time, size, said if size else "")
    raise BadTask(f"{name} is cut off: its archive has no end", hint="build the image anew")


def _aligned(place: int) -> int:
    return (place + 3) & ~3
