"""Reader of the YAML subset that RKE2's settings use, for nodes whose Python has no YAML parser.

The reader must know where each quote and bracket begins, because only these may continue at the left margin, and follows them to
their end. It refuses anything else that it does not know.
"""

from __future__ import annotations

import re
from typing import Any

NOTHING = ("", "~", "null", "Null", "NULL")
ABOVE = re.compile(r"(?: *(?:#.*)?\n)*( *)")
"""Pattern of empty lines and comments before the next line with content, whose indentation it captures."""
EMPTY = re.compile(r"((?: *\n)*)( *)")
KEY = re.compile(r"(\"[^\"\\\n]*\"|'[^'\n]*'|[A-Za-z0-9][A-Za-z0-9_.-]*\+?) *:(?=[ \t\n])[ \t]*")
"""A key at the left margin. RKE2 has no key that needs escapes."""
INNER = re.compile(
    r"(?P<dashes>(?:-(?=[ \t\n])[ \t]*)*)"
    r"(?P<key>(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\n]|'')*'|[^\s\"'\[\]{},&*!|>%@`#?][^#\n]*?) *:(?=[ \t\n])[ \t]*)?"
)
"""Pattern of the beginning of a line below a key: dashes, a key, both, or neither."""
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'", re.DOTALL)
TAIL = re.compile(r"[ \t]*(?:(?<=[ \t])#.*)?\n")
BLOCK = re.compile(r"[|>](?:[+-]?([1-9])?|([1-9])[+-])[ \t]*(?:(?<=[ \t])#.*)?\n")
COLON = re.compile(r":(?=[ \t]|$)")
BETWEEN = re.compile(r"(?:[ \t\n]+(?:#.*)?)*")
"""Blanks, line ends and comments between two words in brackets."""
WORDS = re.compile(
    r"(?:[^\s,\[\]{}?:#&*!|>%@`\"'-]|-(?=[^\s,\[\]{}]))(?:[^\s,\[\]{}?:#]|:(?=[^\s,\[\]{}\"'])|\?(?=\w)|(?<=\S)#"
    r"|[ \t]+(?=[^\s,\[\]{}?:#\"']))*"
)
"""An unquoted text in brackets, up to the end of its line."""
FOLD = re.compile(r"[ \t]*\n[ \t]*((?:\n[ \t]*)*)")
ESCAPE = re.compile(r"\\\n[ \t]*((?:\n[ \t]*)*)|\\(?:x(..)|u(.{4})|U(.{8})|(.))|%s" % FOLD.pattern)
ESCAPED = dict(zip('0abt\tnvfre "/\\N_LP', '\0\a\b\t\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029'))


class SettingsUnreadable(Exception):
    """Error: the text may hold keys that the reader cannot see; the message names the line or the reason."""


class SettingsReader:
    """Reader of one YAML mapping in `text`, at position `at`.

    A key's value is beside it, below it and further indented, or a list.
    """

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def mapping(self) -> dict:
        """Return the keys of the whole text with their values; lists, mappings and blocks become empty.

        Raises SettingsUnreadable.
        """
        keys: dict = {}
        left = indent = self._next()
        while indent >= 0:
            key = KEY.match(self.text, self.at)
            if indent != left or key is None:
                raise self._refusal()
            self.at = key.end()
            name = key.group(1)[1:-1] if key.group(1)[0] in "\"'" else key.group(1)
            keys[name] = self._below(left) if self._is_over() else self._value(left)
            indent = self._next()
        return keys

    def _refusal(self, at: int = -1, why: str = "") -> SettingsUnreadable:
        return SettingsUnreadable("line %d%s" % (self.text.count("\n", 0, self.at if at < 0 else at) + 1, why))

    def _next(self) -> int:
        """Move to the next line with content and return its indentation, or -1 at the end of the text."""
        match = ABOVE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return len(match.group(1)) if self.at < len(self.text) else -1

    def _is_over(self) -> bool:
        """Return True if only a comment or nothing follows on this line."""
        return self.text[self.at] in "\n#"

    def _below(self, left: int) -> str:
        """Read what lies below a key that has nothing beside it; return its text, empty for a list, a mapping or nothing."""
        self.at = self.text.index("\n", self.at) + 1
        parent, is_open, is_first = left, True, True
        while True:
            start = self.at
            indent = self._next()
            if indent < left or (indent == left and not re.compile(r"-[ \t\n]").match(self.text, self.at)):
                self.at = start
                return ""
            begin = self.at - indent
            head = INNER.match(self.text, self.at)
            assert head is not None
            if head.end() > self.at:
                parent = (head.start("key") if head.group("key") else self.at + len(head.group("dashes").rstrip()) - 1) - begin
            elif not is_open or indent <= parent:
                raise self._refusal()
            elif is_first:
                return self._value(left)
            self.at = head.end()
            is_open, is_first = self._is_over(), False
            if is_open:
                self.at = self.text.index("\n", self.at) + 1
            else:
                self._value(parent)

    def _value(self, parent: int) -> str:
        """Return the value at this position and move behind its last line. `parent` is the indentation of its key or dash."""
        first = self.text[self.at]
        if first in "|>":
            self._block(parent)
            return ""
        if first not in "\"'[{":
            return self._plain(parent)
        value = ""
        if first in "[{":
            self._brackets()
        else:
            value = self._quoted()
        tail = TAIL.match(self.text, self.at)
        if tail is None:
            raise self._refusal()
        self.at = tail.end()
        return value

    def _quoted(self) -> str:
        match = QUOTED.match(self.text, self.at)
        if match is None:
            raise self._refusal(why=", which has no end there")
        text = match.group()[1:-1]
        value = FOLD.sub(_folded, text).replace("''", "'") if match.group()[0] == "'" else ESCAPE.sub(self._escaped, text)
        self.at = match.end()
        return value

    def _escaped(self, match: Any) -> str:
        joined, two, four, eight, single, breaks = match.groups()
        if joined is not None:
            return "\n" * joined.count("\n")
        if breaks is not None:
            return _folded(match)
        try:
            return ESCAPED[single] if single else chr(int(two or four or eight, 16))
        except (KeyError, ValueError, OverflowError):
            raise self._refusal() from None

    def _brackets(self) -> None:
        """Move behind a list or mapping in brackets. Raises SettingsUnreadable if it has no end."""
        start, within, last = self.at, [], ""
        while True:
            first = self.text[self.at : self.at + 1]
            if not first:
                raise self._refusal(start, ", which has no end there")
            if first in ",]}:":
                if first in "]}" and within.pop() + first not in ("[]", "{}"):
                    raise self._refusal()
                if first == ":" and last != '"' and self.text[self.at + 1] not in " \t\n,[]{}":
                    raise self._refusal()
                self.at, last = self.at + 1, first if first in "]}" else ""
                if not within:
                    return
            elif last == "a" and first not in "\"'[{":  # goes on from the line above
                self._words()
            elif last:
                raise self._refusal()
            elif first in "[{":
                within.append(first)
                self.at += 1
            elif first in "\"'":
                self._quoted()
                last = '"'
            else:
                self._words()
                last = "a"
            between = BETWEEN.match(self.text, self.at)
            self.at = between.end() if between else self.at

    def _words(self) -> None:
        match = WORDS.match(self.text, self.at)
        if match is None:
            raise self._refusal()
        self.at = match.end()

    def _block(self, parent: int) -> None:
        """Move behind a block of text (`|` or `>`), indented like its first line or as its header says."""
        match = BLOCK.match(self.text, self.at)
        if match is None:
            raise self._refusal()
        self.at = match.end()
        empty = EMPTY.match(self.text, self.at)
        assert empty is not None
        digit = match.group(1) or match.group(2)
        indent = parent + int(digit) if digit else len(empty.group(2))
        if not digit and max(map(len, empty.group(1).split("\n"))) > indent:
            raise self._refusal()
        if indent > parent:
            lines = re.compile(r"(?: {%d}.*\n| *\n)*" % indent).match(self.text, self.at)
            self.at = lines.end() if lines else self.at

    def _plain(self, parent: int) -> str:
        """Return an unquoted text, which may continue on further indented lines and ends before a comment."""
        if self.text[self.at] in "&*!%@`?,]}" or re.compile(r"-[ \t\n]").match(self.text, self.at):
            raise self._refusal()
        value, goes_on = "", True
        while goes_on:
            end = self.text.index("\n", self.at)
            line = self.text[self.at : end]
            content = re.split(r"[ \t]+#", line)[0]
            if COLON.search(content):
                raise self._refusal()
            self.at = end + 1
            empty = EMPTY.match(self.text, self.at)
            assert empty is not None
            further = self.text[empty.end() : empty.end() + 1]
            goes_on = content == line and len(empty.group(2)) > parent and further not in ("", "#")
            value += content
            if goes_on:
                value += "\n" + empty.group(1)
                self.at = empty.end()
        value = FOLD.sub(_folded, value.rstrip(" \t"))
        return "" if value in NOTHING else value


def _folded(match: Any) -> str:
    """Return the replacement for a line end within a value: a space, or a line end for each empty line that follows."""
    return "\n" * match.groups()[-1].count("\n") or " "
