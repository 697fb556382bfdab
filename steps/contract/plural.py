"""Counted nouns: `1 object`, `2 objects`."""


def count(number: int, thing: str) -> str:
    """Return a number and its noun, in the singular for 1. The plural of `thing` must be formed with an s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
