"""Looks for the bytes of secrets in a layer: in files, names, links and attributes, plain and as programs write them down."""

import base64
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

from steps.clients.image import content

SHORTEST: Final = 8
"""Bytes of a secret; a shorter one stands in many files by chance, and could not be searched for."""
MARK: Final = "[redacted]"
_CHUNK: Final = 4 << 20


def forms(secret: bytes) -> list[bytes]:
    """A secret as it may turn up: as it is, in base64 at each of its three offsets, in hex, in a URL."""
    bare = secret.strip()
    found = {bare, bare.hex().encode(), bare.hex().upper().encode(), quote_from_bytes(bare).encode()}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for offset in range(3):
            coded = encode(bytes(offset) + bare)
            found.add(coded[-(-offset * 4 // 3) : len(coded) - 4])  # without what the bytes before and after it change
    return sorted(one for one in found if len(one) >= SHORTEST)


def search(tree: Path, secrets: Mapping[str, bytes]) -> list[str]:
    """`NAME in PATH` of each place where a secret's bytes stand, sorted."""
    needles = [(name, form) for name, secret in secrets.items() for form in forms(secret)]
    found = set()
    for folder, folders, names in os.walk(tree):
        for name in [*folders, *names]:
            path = Path(folder, name)
            found |= {f"{secret} in /{path.relative_to(tree)}" for secret in _holding(path, needles)}
    return sorted(found)


def _holding(path: Path, needles: Iterable[tuple[str, bytes]]) -> set[str]:
    status = path.lstat()
    words = [os.fsencode(path.name)]
    if stat.S_ISLNK(status.st_mode):
        words.append(os.fsencode(os.readlink(path)))
    elif stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        words += content.attributes(path).values()
    near = {name for name, form in needles if any(form in word for word in words)}
    return near | (_in_file(path, needles) if stat.S_ISREG(status.st_mode) else set())


def _in_file(path: Path, needles: Iterable[tuple[str, bytes]]) -> set[str]:
    overlap = max(len(form) for _, form in needles) - 1
    found: set[str] = set()
    with path.open("rb") as stream:
        before = b""
        while chunk := stream.read(_CHUNK):
            window = before + chunk
            found |= {name for name, form in needles if form in window}
            before = window[-overlap:]
    return found


def redact(text: str, secrets: Mapping[str, bytes]) -> str:
    """The text without the secrets, in any of their forms."""
    for secret in secrets.values():
        for form in sorted(forms(secret), key=len, reverse=True):
            text = text.replace(form.decode(errors="replace"), MARK)
    return text
