"""Read files from outside up to a size, so that a wrong path or a hostile file costs no memory."""

from pathlib import Path

from workflows.softwarestack.build_graph import LockError


def read_bounded(path: Path, most: int, hint: str) -> bytes:
    """Return the content of a file of at most `most` bytes. Raises `LockError` with `hint` if it is larger or cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise LockError(f"{path}: cannot be read: {error.strerror}", hint) from error
    if len(content) > most:
        raise LockError(f"{path}: it has more than {most >> 20} MiB", hint)
    return content
