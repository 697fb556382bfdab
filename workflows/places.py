"""Where a path that a user wrote leads on this machine."""

from pathlib import Path


def expanded(text: str) -> Path:
    """The path with `~` and `~NAME` as homes. Where nobody is called so it stays as it is written: it is not there, and whoever
    reads it says so."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
