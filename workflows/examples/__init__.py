"""Example specs that are installed with the package. Each loads without an error and can be rehearsed as it is."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of the examples, in order."""
    return tuple(sorted(file.stem for file in _HERE.glob("*.yaml")))


def path(name: str) -> Path:
    """Return the file of an example.

    Raises:
        KeyError: there is no such example; the message lists the names.
    """
    if name not in names():
        raise KeyError(f"no example {name!r}; there are {', '.join(names())}")
    return _HERE / f"{name}.yaml"
