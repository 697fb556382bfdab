"""Secrets of a layer's build: read anew each time they are needed, and hidden from the programs that the layer runs.

The process beside which those programs run knows the path and digest of a secret, never its bytes, and the file is covered except
for the command that may read it. The process reads secrets only after a command has failed, to remove them from the output: no
other program runs after that.
"""

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from steps.errors import BadTask, Temporary
from steps.nodeimage import kernel_calls
from steps.nodeimage.containment import chroot
from steps.nodeimage.layer import secret_scan


class Noted(Struct, frozen=True, kw_only=True):
    """Path of a secret file, and the sha256 of the bytes that commands get, which the search for leaked secrets must use too."""

    path: str
    sha256: str


def note(folder: Path, names: Iterable[str], layer: str) -> dict[str, Noted]:
    """Return name → path and digest of a layer's secrets. Raises BadTask if one is missing or too short to be searched for."""
    secrets = {}
    for name in names:
        try:
            path = (folder / name).resolve(strict=True)
            data = path.read_bytes()
        except OSError as error:
            message = f"secret {name} of layer {layer}: {folder / name}: {error.strerror}"
            raise BadTask(message, hint="give the build this secret") from error
        if len(secret_scan.strip_space(data)) < secret_scan.SHORTEST:
            message = f"secret {name} of layer {layer} has fewer than {secret_scan.SHORTEST} bytes"
            raise BadTask(message, hint="use a longer one: an image cannot be searched for words that short")
        secrets[name] = Noted(path=str(path), sha256=hashlib.sha256(data).hexdigest())
    return secrets


def read(secrets: Mapping[str, Noted]) -> dict[str, bytes]:
    """Return name → bytes of the secrets. Raises Temporary if a secret has changed since the build began."""
    contents = {}
    for name, noted in secrets.items():
        try:
            contents[name] = Path(noted.path).read_bytes()
        except FileNotFoundError:
            contents[name] = b""
        if hashlib.sha256(contents[name]).hexdigest() != noted.sha256:
            raise Temporary(f"secret {name} ({noted.path}) was changed while the layer was built; nothing of it is kept")
    return contents


@contextlib.contextmanager
def hidden(secrets: Mapping[str, Noted]) -> Iterator[None]:
    """Cover the secrets' files within the block, also for programs that reach the builder's own root through /proc."""
    _cover(secrets)
    try:
        yield
    finally:
        _uncover(secrets)


@contextlib.contextmanager
def uncover(secrets: Mapping[str, Noted]) -> Iterator[None]:
    """Uncover the secrets' files, which `hidden` covers, within the block."""
    _uncover(secrets)
    try:
        yield
    finally:
        _cover(secrets)


@contextlib.contextmanager
def with_secrets(root: Path, secrets: Mapping[str, Noted]) -> Iterator[None]:
    """Provide the secrets as files in the root's /run/secrets within the block; then kill all processes left and remove them."""
    folder = root / chroot.SECRETS
    if not secrets:
        yield
        return
    folder.mkdir()
    kernel_calls.mount("tmpfs", folder, "tmpfs", kernel_calls.NOSUID | kernel_calls.NODEV | kernel_calls.NOEXEC, "mode=0700")
    try:
        with uncover(secrets):
            for name, noted in secrets.items():
                shutil.copyfile(noted.path, folder / name)  # by the kernel: the bytes do not get into this process
                (folder / name).chmod(0o400)
        yield
    finally:
        chroot.end_others()
        kernel_calls.unmount(folder)
        folder.rmdir()


def _cover(secrets: Mapping[str, Noted]) -> None:
    for path in _places(secrets):
        kernel_calls.mount("/dev/null", path, "", kernel_calls.BIND)


def _uncover(secrets: Mapping[str, Noted]) -> None:
    for path in _places(secrets):
        kernel_calls.unmount(path)


def _places(secrets: Mapping[str, Noted]) -> list[Path]:
    return [Path(path) for path in sorted({noted.path for noted in secrets.values()})]
