"""Reads a squashfs without mounting or unpacking it: every path with what it is and the digest of its bytes."""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from steps.clients.image import streams
from steps.contract.image import debian
from steps.contract.image.difference import FileOf
from steps.errors import BadTask

SAME: Final = "same"
"""Another name of a file; `link` is the one that has its facts."""
_KINDS: Final = {"D": "folder", "R": "file", "S": "link", "C": "device", "B": "device", "F": "pipe", "I": "special", "L": SAME}
_ATTRIBUTE: Final = "x"
"""A line of squashfs-tools 4.6 and later; earlier ones tell no attributes, so nobody relies on it."""
_HEADER_END: Final = b"# START OF DATA - DO NOT MODIFY"
_ESCAPED: Final = re.compile(r"\\(.)")
_SPLIT: Final = re.compile(r"(?<!\\) ")
_CHUNK: Final = 1 << 20
_MOST_HEADER: Final = 256 << 20


class Squashed:
    """A squashfs that was read: `files` by path, and `owners`, the package of each path that the package manager knows."""

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
        if kind == _ATTRIBUTE:
            continue
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
        note = debian.note(path)
        digest, text = hashlib.sha256(), []
        for chunk in _chunks(stream, size, name):
            digest.update(chunk)
            if note and note.lists:
                text.append(chunk)
        at = begin + size
        before = found.files[path]
        found.files[path] = FileOf(before.kind, before.mode, before.owner, before.time, size, digest.hexdigest())
        if note:
            paths = debian.listed(b"".join(text).decode(errors="surrogateescape"))
            found.owners.update(dict.fromkeys([*paths, path], note.package))


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
