"""Readers of a squashfs that need no mount: every path with its type and digest, and the text files below its /etc."""

import hashlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from msgspec.structs import replace

from steps import timeouts
from steps.clients import process, program_streams
from steps.errors import BadTask
from steps.nodeimage.contract import debian
from steps.nodeimage.contract.image_difference import FileOf

SAME: Final = "same"
"""Type of a further name of a file with several names; its `link` is the name under which the listing describes the file."""
_KINDS: Final = {"D": "folder", "R": "file", "S": "link", "C": "device", "B": "device", "F": "pipe", "I": "special", "L": SAME}
_ATTRIBUTE: Final = "x"
"""Type of the lines about extended attributes, which squashfs-tools print only from 4.6 on; this module ignores them."""
_HEADER_END: Final = b"# START OF DATA - DO NOT MODIFY"
_ESCAPED: Final = re.compile(r"\\(.)")
_SPLIT: Final = re.compile(r"(?<!\\) ")
_CHUNK: Final = 1 << 20
_MOST_HEADER: Final = 256 << 20
_HINT: Final = "`bringup image verify` says what is wrong"


class Squashed:
    """Content of a squashfs, made by `read`: `files` is path → file, `owners` is path → package that brought the path."""

    def __init__(self) -> None:
        self.files: dict[str, FileOf] = {}
        self.owners: dict[str, str] = {}


def read(path: Path) -> Squashed:
    """Return the content of a squashfs, read in one pass. Raises BadTask if the file is damaged or unsquashfs is missing."""
    squashed = Squashed()
    with tempfile.TemporaryDirectory(prefix="bringup-squashfs-") as scratch:
        words = ["unsquashfs", "-no-progress", "-quiet", "-pf", "/dev/stdout", str(path)]
        with program_streams.open_output(words, Path(scratch) / "errors") as stream:
            sources = _listing(stream, squashed, path.name)
            _contents(stream, sources, squashed, path.name)
    return squashed


def _listing(stream: IO[bytes], squashed: Squashed, name: str) -> list[tuple[int, int, str]]:
    """Fill `squashed` with the paths of the stream's header, and return (position, size, path) for each file's bytes, in order."""
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
            squashed.files[path] = FileOf(_KINDS[kind], 0, "", 0, link=_ESCAPED.sub(r"\1", " ".join(words)))
            continue
        squashed.files[path] = _file(kind, words)
        if kind == "R":
            sources.append((int(words[5]), int(words[4]), path))  # time, mode, uid and gid come first
    if not squashed.files:
        raise BadTask(f"{name} is no whole squashfs: unsquashfs lists nothing of it", hint=_HINT)
    return sorted(sources)


def _file(kind: str, words: list[str]) -> FileOf:
    time, mode, uid, gid, *rest = words
    size = int(rest[0]) if kind == "R" else 0
    link = _ESCAPED.sub(r"\1", " ".join(rest)) if kind in ("S", "C", "B", "I") else ""
    return FileOf(_KINDS.get(kind, kind), int(mode, 8), f"{uid}:{gid}", int(time), size, link=link)


def _contents(stream: IO[bytes], sources: list[tuple[int, int, str]], squashed: Squashed, name: str) -> None:
    """Add the digest of each file, whose bytes follow in the order of `sources` after one more comment line. Raises BadTask."""
    at = 0
    stream.readline()
    for begin, size, path in sources:
        gap = begin - at
        while gap > 0:
            gap -= len(stream.read(min(gap, _CHUNK))) or gap  # at the end of a cut stream `_chunks` raises
        note = debian.note(path)
        digest, text = hashlib.sha256(), []
        for chunk in _chunks(stream, size, name):
            digest.update(chunk)
            if note and note.lists:
                text.append(chunk)
        at = begin + size
        squashed.files[path] = replace(squashed.files[path], size=size, digest=digest.hexdigest())
        if note:
            paths = debian.listed_paths(b"".join(text).decode(errors="surrogateescape"))
            squashed.owners.update(dict.fromkeys([*paths, path], note.package))


def _chunks(stream: IO[bytes], size: int, name: str) -> Iterator[bytes]:
    while size > 0:
        chunk = stream.read(min(size, _CHUNK))
        if not chunk:
            raise BadTask(f"{name} is cut off: {size} bytes of a file are missing", hint=_HINT)
        size -= len(chunk)
        yield chunk


FOLDER: Final = "etc"
_LARGEST: Final = 1 << 20


def read_settings(squashfs: Path) -> dict[str, str]:
    """Return path → text of the files below /etc. Files that are no text or larger than 1 MiB are left out.

    Raises BadTask if the folder cannot be read completely, Temporary if that takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="bringup-settings-") as scratch:
        into = Path(scratch) / "root"
        words = ["unsquashfs", "-quiet", "-no-progress", "-no-xattrs", "-dest", str(into), str(squashfs), FOLDER]
        done = process.run(words, seconds=timeouts.IMAGE_SETTINGS)
        if done.code != 0 or not (into / FOLDER).is_dir():
            raise BadTask(f"{squashfs.name} cannot be read: {' '.join(done.err.split())[:200]}")
        return dict(_texts(into))


def _texts(root: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((root / FOLDER).rglob("*")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        path.chmod(0o600)  # this copy is ours, whoever may read the original
        try:
            yield f"/{path.relative_to(root)}", path.read_bytes().decode()
        except UnicodeDecodeError:  # a key store
            continue
