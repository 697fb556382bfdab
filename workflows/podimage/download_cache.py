"""Cache of downloads and built layers: packages by their digest, layers by the digest of their inputs."""

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
from workflows.podimage.errors import BuildError


def default() -> Path:
    """Return the default folder: `images` in `$BRINGUP_CACHE`, else in `~/.cache/bringup`."""
    return Path(os.environ.get("BRINGUP_CACHE") or Path.home() / ".cache" / "bringup") / "images"


class Cache:
    """Folder of packages and layers; all of it can be made again, so it may be removed at any time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("packages", "layers", "roots"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the cache for one build; a second build waits and then finds everything made."""
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def package(self, sha256: str) -> Path:
        """Return the path of the package with this digest; None if it is not cached."""
        return self.folder / "packages" / sha256

    def read_package(self, sha256: str) -> Path:
        """Return the bytes of a package for an image. Raises BuildError if they have changed on disk."""
        path = self.package(sha256)
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise BuildError(f"{path} no longer has the digest that names it", hint="remove it, and it is fetched again")
        return path

    def add_package(self, path: Path) -> str:
        """Add a downloaded package and return its digest."""
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        unfinished = self.package(f"{digest}.new")
        shutil.copyfile(path, unfinished)
        unfinished.replace(self.package(digest))
        return digest

    def layer(self, key: str) -> tuple[Blob, Path] | None:
        """Return a layer made from equal inputs; None if there is none."""
        note, path = self._note(key), self.layer_path(key)
        if not (note.exists() and path.exists()):
            return None
        return msgspec.json.decode(note.read_bytes(), type=Blob), path

    def layer_path(self, key: str) -> Path:
        """Return the path of a compressed layer, which need not exist."""
        return self.folder / "layers" / f"{key}.tar.gz"

    def add_layer(self, key: str, blob: Blob) -> tuple[Blob, Path]:
        """Note that the layer at `layer_path` is whole."""
        self._note(key).write_bytes(msgspec.json.encode(blob))
        return blob, self.layer_path(key)

    def root(self, key: str) -> Path:
        """Return the folder of an unpacked layer; None if there is none."""
        return self.folder / "roots" / key

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a temporary folder on the cache's disk."""
        with tempfile.TemporaryDirectory(prefix=".work-", dir=self.folder) as folder:
            yield Path(folder)

    def _note(self, key: str) -> Path:
        return self.folder / "layers" / f"{key}.json"
