"""Versions of this machine's programs, as they say them."""

from collections.abc import Sequence

from steps.clients import process


def version(words: Sequence[str]) -> str:
    """What a program says of itself. Raises BadTask where it is not installed."""
    said = process.run(list(words)).out.replace(",", " ").split()
    return next((word.lstrip("v") for word in said if word.lstrip("v")[:1].isdigit()), "unknown")
