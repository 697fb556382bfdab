"""What was fetched or made once: packages by their digest, layers by the digest of what went into them."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steps.contract.oci import Blob
from workflows.images.errors import BuildError


def default() -> Path:
    """`$BRINGUP_CACHE`, else `~/.cache/bringup`, and there `images`."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup") / "images"


class Cache:
    """A folder of packages and layers; everything in it can be made again, so it may be removed at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("packages", "layers", "roots"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One build at a time: a second one waits, and then finds everything made."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def package(self, sha256: str) -> Path:
        """Where a package of this digest lies, if it does."""
        return self.folder / "packages" / sha256

    def read_package(self, sha256: str) -> Path:
        """A package that is to go into an image. Raises BuildError where the disk changed it."""
        path = self.package(sha256)
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise BuildError(f"{path} no longer has the digest that names it", hint="remove it, and it is fetched again")
        return path

    def add_package(self, path: Path) -> str:
        """Take a fetched package in, by its digest, which is returned."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        unfinished = self.package(f"{digest}.new")
        shutil.copyfile(path, unfinished)
        unfinished.replace(self.package(digest))
        return digest

    def layer(self, key: str) -> tuple[Blob, Path] | None:
        """A layer made before from the same content."""
        note, path = self._note(key), self.layer_path(key)
        if not (note.exists() and path.exists()):
            return None
        return msgspec.json.decode(note.read_bytes(), type=Blob), path

    def layer_path(self, key: str) -> Path:
        """Where the compressed layer lies or is to be written."""
        return self.folder / "layers" / f"{key}.tar.gz"

    def add_layer(self, key: str, blob: Blob) -> tuple[Blob, Path]:
        """Note that the layer at `layer_path` is whole."""
        self._note(key).write_bytes(msgspec.json.encode(blob))
        return blob, self.layer_path(key)

    def root(self, key: str) -> Path:
        """Where an unpacked layer lies, if it does."""
        return self.folder / "roots" / key

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on the cache's own disk, removed afterwards."""
        with tempfile.TemporaryDirectory(prefix=".work-", dir=self.folder) as folder:
            yield Path(folder)

    def _note(self, key: str) -> Path:
        return self.folder / "layers" / f"{key}.json"
