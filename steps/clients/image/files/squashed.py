"""Reads a squashfs without mounting or unpacking it: every path with what it is and the digest of its bytes."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from steps.clients.image import streams
from steps.contract.image.difference import FileOf
from steps.errors import BadTask

_KINDS: Final = {"D": "folder", "R": "file", "S": "link", "C": "device", "B": "device", "F": "pipe", "I": "special", "L": "same"}
_HEADER_END: Final = b"# START OF DATA - DO NOT MODIFY"
_ESCAPED: Final = re.compile(r"\\(.)")
_SPLIT: Final = re.compile(r"(?<!\\) ")
_CHUNK: Final = 1 << 20
_PACKAGE_FILE: Final = re.compile(r"var/lib/dpkg/info/([^/:]+?)(?::\w+)?\.(list|[a-z0-9]+)")
_MOST_HEADER: Final = 256 << 20


class Squashed:
    """A squashfs that was read: `files` by path, and `owners`, the package of each path that dpkg knows."""

    def __init__(self) -> None:
        self.files: dict[str, FileOf] = {}
        self.owners: dict[str, str] = {}


def read(path: Path) -> Squashed:
    """Read a whole squashfs, in one pass. Raises BadTask where it is none, or unsquashfs is not installed."""
    found = Squashed()
    with tempfile.TemporaryDirectory(prefix="bringup-squashfs-") as scratch:
        words = ["unsquashfs", "-no-progress", "-quiet", "-pf", "/dev/stdout", str(path)]
        with streams.out_of(words, Path(scratch) / "errors") as stream:
            sources = _listing(stream, found, path.name)
            _contents(stream, sources, found, path.name)
    return found


def _listing(stream: IO[bytes], found: Squashed, name: str) -> list[tuple[int, int, str]]:
    """The paths, and for each file where its bytes begin, how many there are, and its path."""
    sources, size = [], 0
    for raw in stream:
        size += len(raw)
        if raw.startswith(_HEADER_END) or size > _MOST_HEADER:
            break
        line = raw.decode(errors="surrogateescape").rstrip("\n")
        if line.startswith("#") or not line:
            continue
        path, kind, *words = _SPLIT.split(line)
        path = _ESCAPED.sub(r"\1", path)
        if kind == "L":
            found.files[path] = FileOf(_KINDS[kind], 0, "", 0, link=_ESCAPED.sub(r"\1", " ".join(words)))
            continue
        found.files[path] = _file(kind, words)
        if kind == "R":
            sources.append((int(words[5]), int(words[4]), path))
    if not found.files:
        raise BadTask(
            f"{name} is no whole squashfs: unsquashfs lists nothing of it", hint="`bringup image verify` says what is wrong"
        )
    return sorted(sources)


def _file(kind: str, words: list[str]) -> FileOf:
    time, mode, uid, gid, *rest = words
    size = int(rest[0]) if kind == "R" else 0
    link = _ESCAPED.sub(r"\1", " ".join(rest)) if kind in ("S", "C", "B", "I") else ""
    return FileOf(_KINDS.get(kind, kind), int(mode, 8), f"{uid}:{gid}", int(time), size, link=link)


def _contents(stream: IO[bytes], sources: list[tuple[int, int, str]], found: Squashed, name: str) -> None:
    """Take the digests; the bytes of the files come in the order of `sources`, after one more line of comment."""
    at = 0
    stream.readline()
    for begin, size, path in sources:
        _skip(stream, begin - at)
        known = _PACKAGE_FILE.fullmatch(path)
        keep = known is not None and known[2] == "list"
        digest, text = hashlib.sha256(), []
        for chunk in _chunks(stream, size, name):
            digest.update(chunk)
            if keep:
                text.append(chunk)
        at = begin + size
        before = found.files[path]
        found.files[path] = FileOf(before.kind, before.mode, before.owner, before.time, size, digest.hexdigest())
        if known:
            paths = b"".join(text).decode(errors="surrogateescape").splitlines()
            found.owners.update((_merged(one), known[1]) for one in paths if one not in ("/.", ""))
            found.owners[path] = known[1]


def _skip(stream: IO[bytes], size: int) -> None:
    while size > 0:
        size -= len(stream.read(min(size, _CHUNK))) or size


def _chunks(stream: IO[bytes], size: int, name: str) -> Iterator[bytes]:
    while size > 0:
        chunk = stream.read(min(size, _CHUNK))
        if not chunk:
            raise BadTask(
                f"{name} is cut off: {size} bytes of a file are missing", hint="`bringup image verify` says what is wrong"
            )
        size -= len(chunk)
        yield chunk


def _merged(path: str) -> str:
    """A path of a package in a root whose /bin, /sbin and /lib are links to those in /usr."""
    plain = os.path.normpath(path).lstrip("/")
    return f"usr/{plain}" if re.match(r"(bin|sbin|lib\w*)/", plain) else plain
