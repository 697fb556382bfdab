"""Patterns over a test's output: which regular expressions a spec may use, and how they are searched. Pure.

Python's engine backtracks, and output comes from built packages: patterns are short, without a repetition in a repetition, and meet
one bounded line at a time.
"""

import re
from typing import Final

from msgspec import Struct

LONGEST: Final = 300
"""Most characters of a pattern."""
MOST_REPETITIONS: Final = 8
LONGEST_LINE: Final = 1000
"""Characters of a line that are searched."""
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_CLASS: Final = re.compile(r"\[\^?\]?[^\]]*\]")
_GROUP: Final = re.compile(r"\((?:\?(?::|P<\w+>|[=!]|<[=!]))?([^()]*)\)([*+{]?)")
_REPETITION: Final = re.compile(r"[*+{]")


class OutputReference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A figure that a test prints: the pattern has one group, which is a number, within the limits that are set."""

    pattern: str
    least: float | None = None
    most: float | None = None

    @property
    def range(self) -> str:
        """Return the limits in words, such as `at least 2.5`."""
        limits = [f"at least {self.least:g}"] if self.least is not None else []
        return " and ".join([*limits, *([f"at most {self.most:g}"] if self.most is not None else [])])

    def has(self, value: float) -> bool:
        """Return True if a value lies within the limits; NaN does not."""
        above = self.least is None or value >= self.least
        return above and (self.most is None or value <= self.most)


def problem(pattern: str, groups: int | None = None) -> str:
    """Return why a pattern is refused; empty if it is none. `groups` is how many groups it must have, None: any number."""
    if len(pattern) > LONGEST:
        return f"it has {len(pattern)} characters, and {LONGEST} are the limit"
    try:
        count = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"it is no regular expression: {error}"
    if groups is not None and count != groups:
        return f"it has {count} groups, and {groups} is expected: the number that is compared"
    plain = _CLASS.sub("x", _ESCAPE.sub("x", pattern))
    if len(_REPETITION.findall(plain)) > MOST_REPETITIONS:
        return f"it has more than {MOST_REPETITIONS} repetitions"
    return "it has a repetition within a repetition, which may take forever" if _is_nested(plain) else ""


def matching_line(pattern: str, text: str) -> re.Match[str] | None:
    """Return the first match of a pattern in a line of a text."""
    compiled = re.compile(pattern)
    matches = (compiled.search(line[:LONGEST_LINE]) for line in text.splitlines())
    return next((match for match in matches if match is not None), None)


def _is_nested(pattern: str) -> bool:
    """Return True if a group that has a repetition is repeated itself; escapes and classes are replaced already."""
    while (group := _GROUP.search(pattern)) is not None:
        inner = bool(_REPETITION.search(group[1]))
        if inner and group[2]:
            return True
        # a group that had a repetition still has one where it is part of another group
        pattern = f"{pattern[: group.start()]}{'x*' if inner else 'x'}{pattern[group.end(1) + 1 :]}"
    return False
