"""Numbers of things in words: `1 object`, `2 objects`."""


def count(number: int, thing: str) -> str:
    """A number and what it counts, in the singular where it is one; the plural of `thing` takes an s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
