"""Looks for the bytes of secrets in a layer: in files, names, links and attributes, plain, as programs write them down, and packed.

White space counts for nothing, neither in a secret nor in what is searched: programs wrap what they write (`base64` after 76
characters, `od` after each byte), and a key is put on one line. Packed files are opened (`packed`), but for those that are as a
package of the layer brought them: no secret is in these.
"""

import base64
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote_from_bytes

from steps.clients.image.layer import content, packed
from steps.contract.image import debian

SHORTEST: Final = 8
"""Bytes of a secret, or of a line of it, without white space; a shorter one stands in many files by chance."""
MARK: Final = "[redacted]"
_CHUNK: Final = 4 << 20
_WHITE: Final = b" \t\n\v\f\r"
_FRAME: Final = b"-----"
"""Begins the lines around a key, which stand in many files."""


def bare(data: bytes) -> bytes:
    """Without white space."""
    return data.translate(None, _WHITE)


def forms(secret: bytes) -> list[bytes]:
    """A secret as it may turn up: as it is, in base64 at each of its three offsets, in hex, in a URL, and each of its lines alone,
    for a part of it tells as much; all without white space."""
    whole = secret.strip()
    found = {whole, whole.hex().encode(), whole.hex().upper().encode(), quote_from_bytes(whole).encode()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            coded = encode(bytes(offset) + whole)
            found.add(coded[-(-offset * 4 // 3) : len(coded) - 4])  # without what the bytes before and after it change
    found |= {line for line in whole.splitlines() if not line.startswith(_FRAME)}
    return sorted({short for one in found if len(short := bare(one)) >= SHORTEST})


def search(tree: Path, secrets: Mapping[str, bytes]) -> list[str]:
    """`NAME in PATH` of each place where a secret's bytes stand, sorted; also of one that packs more than can be searched."""
    needles = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    brought = _Brought(tree)
    found = set()
    for folder, folders, names in os.walk(tree):
        for name in [*folders, *names]:
            path = Path(folder, name)
            place = f"/{path.relative_to(tree)}"
            found |= {f"{secret} in {place}" for secret in _holding(path, needles)}
            found |= {f"{secret} in {place}" for secret in _packed(path, needles, brought)}
    return sorted(found)


class _Brought:
    """What packages of a layer brought, by path, with the digest that was noted; read when it is asked for."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def has(self, path: Path) -> bool:
        """Whether a file is byte for byte as a package brought it."""
        place = str(path.relative_to(self._tree))
        noted = self._noted.get(place) or self._noted.get(place.removeprefix("usr/"))
        if noted is None:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == noted

    @cached_property
    def _noted(self) -> dict[str, str]:
        texts = (path.read_text(errors="replace") for path in self._tree.glob(debian.DIGESTS))
        return debian.digests(texts)


def _packed(path: Path, needles: list[tuple[str, bytes]], brought: _Brought) -> set[str]:
    """Secrets within what a file packs, and `perhaps one` where that is too much to be searched."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return set()
    with path.open("rb") as file:
        if not packed.is_packed(file.read(packed.HEAD)) or brought.has(path):
            return set()
        file.seek(0)
        try:
            return {name for stream in packed.inside(file) for name in _in_stream(stream, needles)}
        except packed.TooMuch:
            return {"perhaps one (it packs too much to be searched)"}


def _holding(path: Path, needles: Iterable[tuple[str, bytes]]) -> set[str]:
    status = path.lstat()
    words = [os.fsencode(path.name)]
    if stat.S_ISLNK(status.st_mode):
        words.append(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        words += content.attributes(path).values()
    near = {name for name, form in needles if any(form in bare(word) for word in words)}
    return near | (_in_file(path, needles) if stat.S_ISREG(status.st_mode) else set())


def _in_file(path: Path, needles: Iterable[tuple[str, bytes]]) -> set[str]:
    with path.open("rb") as stream:
        return _in_stream(stream, needles)


def _in_stream(stream: IO[bytes], needles: Iterable[tuple[str, bytes]]) -> set[str]:
    overlap = max(len(form) for _, form in needles) - 1
    found: set[str] = set()
    before = b""
    while chunk := stream.read(_CHUNK):
        window = before + bare(chunk)
        found |= {name for name, form in needles if form in window}
        before = window[-overlap:]
    return found


def redact(said: str, secrets: Mapping[str, bytes]) -> str:
    """The text without the secrets, in any of their forms."""
    return redact_bytes(said.encode(errors="replace"), secrets).decode(errors="replace")


def redact_bytes(said: bytes, secrets: Mapping[str, bytes]) -> bytes:
    """The output of a program without the secrets, in any of their forms."""
    short = bare(said)
    found = sorted(span for secret in secrets.values() for form in forms(secret) for span in _spans(short, form))
    if not found:
        return said
    places = [place for place, byte in enumerate(said) if byte not in _WHITE]
    kept, end = b"", 0
    for first, last in found:
        begin = places[first]
        if begin >= end:
            kept += said[end:begin] + MARK.encode()
        end = max(end, places[last] + 1)
    return kept + said[end:]


def _spans(text: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    """Where a form stands: its first and its last byte."""
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form) - 1
        at = text.find(form, at + 1)
