"""Text that others wrote, as text alone: none of it moves a cursor, turns a line around, or begins a line of its own.

A module's message, a container's last words and an API's answer end up in verdicts, in a live view and in a terminal.
"""

import re

MARK = "\N{REPLACEMENT CHARACTER}"
"""Stands for what was taken out, so that a reader sees that something was there."""

_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but line end and tab, line separators, the signs that change a line's direction, half characters."""


def line(text: str) -> str:
    """As one line. Ordinary text stays as it is."""
    return text if text.isprintable() else _COMMANDS.sub(MARK, " ".join(text.split()))


def block(text: str) -> str:
    """As lines: their ends and tabs stay."""
    return text if text.isprintable() else _COMMANDS.sub(MARK, text.replace("\r\n", "\n"))


def names(text: str, name: str) -> bool:
    """Whether a text names a host, by itself: not as a part of a longer name or address. A dot at a sentence's end is no part."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None


def escaped(text: str) -> str:
    """JSON text with these characters as JSON escapes them: it says the same."""
    return text if text.isprintable() else _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
