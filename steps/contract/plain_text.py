"""Neutralises text from outside, so that it cannot move a cursor, reverse a line or begin a new one.

Messages of modules, last words of containers and answers of APIs end up in verdicts, in a live view and in a terminal.
"""

import re
from collections.abc import Sequence

MARK = "\N{REPLACEMENT CHARACTER}"
"""Replacement for removed characters, so that a reader sees that something was there."""

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except line end and tab, line separators, marks that change the direction of a line, lone surrogates."""


def line(text: str) -> str:
    """Return a text as one line without control characters. Printable text is returned as it is."""
    return text if text.isprintable() else _COMMANDS.sub(MARK, " ".join(text.split()))


def block(text: str) -> str:
    """Return a text with its line ends and tabs, without other control characters."""
    return text if text.isprintable() else _COMMANDS.sub(MARK, text.replace("\r\n", "\n"))


def truncate(text: str, limit: int) -> str:
    """Return the beginning of a text, cut at white space, followed by its whole length in characters.

    A word is never cut: half a secret would not be recognised and redacted afterwards.
    """
    if len(text) <= limit:
        return text
    words = text[: limit + 1].rsplit(None, 1)
    beginning = words[0] if len(words) == 2 else ""
    return f"{beginning} … ({len(text)} characters)".lstrip()


def names(text: str, name: str) -> bool:
    """Return True if a text names a host, not as a part of a longer name or address. A dot at a sentence's end is no part."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None


def escape_json(text: str) -> str:
    """Return JSON text with control characters escaped; its meaning stays the same."""
    return text if text.isprintable() else _COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def some(names: Sequence[str], most: int) -> str:
    """Return the first `most` names, separated by commas, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def count(number: int, thing: str) -> str:
    """Return a number and its noun, in the singular for 1. The plural of `thing` must be formed with an s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
