"""Paths that a user wrote, resolved on this machine."""

from pathlib import Path


def expand_home(text: str) -> Path:
    """Return the path with `~` and `~NAME` expanded. An unknown user stays as written, and the reader reports the missing file."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
