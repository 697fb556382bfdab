"""Secrets of a build: read anew each time they are needed, and hidden from the programs that a layer runs.

The process beside which these programs run knows a secret's place and digest, never its bytes, and has its file covered but for the
command that it is for. It reads secrets when a command has failed, to take them out of what that said: no other runs after it.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from steps.clients.image.contained import kernel
from steps.clients.image.layer import canaries
from steps.errors import BadTask, Temporary


class Noted(Struct, frozen=True, kw_only=True):
    """Where a secret lies, and the sha256 of its bytes: those that are searched for must be those that a command got."""

    path: str
    sha256: str


def note(folder: Path, names: Iterable[str], layer: str) -> dict[str, Noted]:
    """The secrets of a layer by name. Raises BadTask where one is missing or too short."""
    found = {}
    for name in names:
        try:
            path = (folder / name).resolve(strict=True)
            data = path.read_bytes()
        except OSError as error:
            said = f"secret {name} of layer {layer}: {folder / name}: {error.strerror}"
            raise BadTask(said, hint="give the build this secret") from error
        if len(canaries.bare(data)) < canaries.SHORTEST:
            said = f"secret {name} of layer {layer} has fewer than {canaries.SHORTEST} bytes"
            raise BadTask(said, hint="use a longer one: an image cannot be searched for words that short")
        found[name] = Noted(path=str(path), sha256=hashlib.sha256(data).hexdigest())
    return found


def read(secrets: Mapping[str, Noted]) -> dict[str, bytes]:
    """The secrets' bytes. Raises Temporary where they are no longer what they were when the build began."""
    found = {}
    for name, noted in secrets.items():
        try:
            found[name] = Path(noted.path).read_bytes()
        except FileNotFoundError:
            found[name] = b""
        if hashlib.sha256(found[name]).hexdigest() != noted.sha256:
            raise Temporary(f"secret {name} ({noted.path}) was changed while the layer was built; nothing of it is kept")
    return found


@contextlib.contextmanager
def hidden(secrets: Mapping[str, Noted]) -> Iterator[None]:
    """Within a namespace: the files of the secrets are empty, for whoever looks at the builder's own root through /proc too."""
    _cover(secrets)
    try:
        yield
    finally:
        _uncover(secrets)


@contextlib.contextmanager
def shown(secrets: Mapping[str, Noted]) -> Iterator[None]:
    """Hidden secrets can be read in this block."""
    _uncover(secrets)
    try:
        yield
    finally:
        _cover(secrets)


def _cover(secrets: Mapping[str, Noted]) -> None:
    for path in _places(secrets):
        kernel.mount("/dev/null", path, "", kernel.BIND)


def _uncover(secrets: Mapping[str, Noted]) -> None:
    for path in _places(secrets):
        kernel.unmount(path)


def _places(secrets: Mapping[str, Noted]) -> list[Path]:
    return [Path(path) for path in sorted({noted.path for noted in secrets.values()})]
