"""What a packed root's own settings say: the text files below its /etc, read without mounting it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from steps import timeouts
from steps.clients import process
from steps.errors import BadTask

FOLDER: Final = "etc"
_LARGEST: Final = 1 << 20


def read(squashfs: Path) -> dict[str, str]:
    """Path (`/etc/…`) → text; what is no text or larger than settings are is left out. Raises BadTask where not all of the folder
    can be read, Temporary."""
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
