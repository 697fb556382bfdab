"""Search for the bytes of secrets in a layer's files, names, links and attributes: plain, encoded, and in packed files.

White space is ignored in secrets and in the searched bytes: programs wrap their output (`base64` after 76 characters, `od` after
each byte), and a key may be put on one line. Packed files are opened (`packed_streams`) unless they are unchanged files of a
package, which contain no secret.
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

from steps.nodeimage.contract import debian
from steps.nodeimage.layer import layer_content, packed_streams

SHORTEST: Final = 8
"""Fewest bytes of a secret, or of one of its lines, without white space; shorter ones occur in many files by chance."""
MARK: Final = "[redacted]"
_CHUNK: Final = 4 << 20
_WHITE: Final = b" \t\n\v\f\r"
_FRAME: Final = b"-----"
"""Start of the first and last line of a PEM key, which occur in many files."""


def strip_space(data: bytes) -> bytes:
    """Return the bytes without white space."""
    return data.translate(None, _WHITE)


def forms(secret: bytes) -> list[bytes]:
    """Return the forms in which a secret may occur, without white space: plain, base64, hex, URL-encoded, and each line alone.

    base64 depends on the offset in the encoded text, so there are three forms of it.
    """
    whole = secret.strip()
    texts = {whole, whole.hex().encode(), whole.hex().upper().encode(), quote_from_bytes(whole).encode()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            coded = encode(bytes(offset) + whole)
            texts.add(coded[-(-offset * 4 // 3) : len(coded) - 4])  # without what the bytes before and after it change
    texts |= {line for line in whole.splitlines() if not line.startswith(_FRAME)}
    return sorted({short for text in texts if len(short := strip_space(text)) >= SHORTEST})


def search(tree: Path, secrets: Mapping[str, bytes]) -> list[str]:
    """Return `NAME in PATH` for each secret found in a layer's folder, sorted; `perhaps one …` for files that pack too much."""
    needles = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    package_files = _PackageFiles(tree)
    places = set()
    for folder, folders, names in os.walk(tree):
        for path in (Path(folder, name) for name in [*folders, *names]):
            secrets_here = _holding(path, needles) | _packed(path, needles, package_files)
            places |= {f"{secret} in /{path.relative_to(tree)}" for secret in secrets_here}
    return sorted(places)


class _PackageFiles:
    """Files that the layer's packages brought, with their MD5 from the package manager's records, which are read on first use."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def has(self, path: Path) -> bool:
        """Return True if a file has the MD5 that a package's record names for its path."""
        place = str(path.relative_to(self._tree))
        noted = self._noted.get(place) or self._noted.get(place.removeprefix("usr/"))
        if noted is None:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == noted

    @cached_property
    def _noted(self) -> dict[str, str]:
        return debian.digests(path.read_text(errors="replace") for path in self._tree.glob(debian.DIGESTS))


def _packed(path: Path, needles: list[tuple[str, bytes]], package_files: _PackageFiles) -> set[str]:
    """Return the names of the secrets within a packed file, or `perhaps one …` if it packs too much to be searched."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return set()
    with path.open("rb") as file:
        if not packed_streams.is_packed(file.read(packed_streams.HEAD)) or package_files.has(path):
            return set()
        file.seek(0)
        try:
            return {name for stream in packed_streams.inside(file) for name in _in_stream(stream, needles)}
        except packed_streams.TooMuch:
            return {"perhaps one (it packs too much to be searched)"}


def _holding(path: Path, needles: Iterable[tuple[str, bytes]]) -> set[str]:
    status = path.lstat()
    words = [os.fsencode(path.name)]
    if stat.S_ISLNK(status.st_mode):
        words.append(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        words += layer_content.attributes(path).values()
    near = {name for name, form in needles if any(form in strip_space(word) for word in words)}
    if not stat.S_ISREG(status.st_mode):
        return near
    with path.open("rb") as stream:
        return near | _in_stream(stream, needles)


def _in_stream(stream: IO[bytes], needles: Iterable[tuple[str, bytes]]) -> set[str]:
    overlap = max(len(form) for _, form in needles) - 1  # a form may begin in one chunk and end in the next
    names: set[str] = set()
    before = b""
    while chunk := stream.read(_CHUNK):
        window = before + strip_space(chunk)
        names |= {name for name, form in needles if form in window}
        before = window[-overlap:]
    return names


def redact(text: str, secrets: Mapping[str, bytes]) -> str:
    """Return the text with the secrets replaced by MARK, in any of their forms."""
    return redact_bytes(text.encode(errors="replace"), secrets).decode(errors="replace")


def redact_bytes(output: bytes, secrets: Mapping[str, bytes]) -> bytes:
    """Return a program's output with the secrets replaced by MARK, in any of their forms."""
    short = strip_space(output)
    spans = sorted(span for secret in secrets.values() for form in forms(secret) for span in _spans(short, form))
    if not spans:
        return output
    places = [place for place, byte in enumerate(output) if byte not in _WHITE]
    kept, end = b"", 0
    for first, last in spans:
        begin = places[first]
        if begin >= end:
            kept += output[end:begin] + MARK.encode()
        end = max(end, places[last] + 1)
    return kept + output[end:]


def _spans(text: bytes, form: bytes) -> Iterator[tuple[int, int]]:
    """Yield the first and last position of each occurrence of a form in the text."""
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form) - 1
        at = text.find(form, at + 1)
