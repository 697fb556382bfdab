"""The reader of what people and tools write in RKE2's settings, for nodes whose Python has no YAML parser.

It must know where each quote and bracket begins, as those alone may go on at the left, and follows them to their end. Whatever
else it meets, it says that it cannot read.
"""

from __future__ import annotations

import re
from typing import Any

NOTHING = ("", "~", "null", "Null", "NULL")
ABOVE = re.compile(r"(?: *(?:#.*)?\n)*( *)")
"""Empty lines and remarks, and how far to the right the next line stands."""
EMPTY = re.compile(r"((?: *\n)*)( *)")
KEY = re.compile(r"(\"[^\"\\\n]*\"|'[^'\n]*'|[A-Za-z0-9][A-Za-z0-9_.-]*\+?) *:(?=[ \t\n])[ \t]*")
"""A key that stands by itself at the left; one with escapes is none that RKE2 knows."""
INNER = re.compile(
    r"(?P<dashes>(?:-(?=[ \t\n])[ \t]*)*)"
    r"(?P<key>(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\n]|'')*'|[^\s\"'\[\]{},&*!|>%@`#?][^#\n]*?) *:(?=[ \t\n])[ \t]*)?"
)
"""How a line below a key begins: with dashes, a key, both, or neither."""
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'", re.DOTALL)
TAIL = re.compile(r"[ \t]*(?:(?<=[ \t])#.*)?\n")
BLOCK = re.compile(r"[|>](?:[+-]?([1-9])?|([1-9])[+-])[ \t]*(?:(?<=[ \t])#.*)?\n")
COLON = re.compile(r":(?=[ \t]|$)")
BETWEEN = re.compile(r"(?:[ \t\n]+(?:#.*)?)*")
"""What may stand between two words in brackets."""
WORDS = re.compile(
    r"(?:[^\s,\[\]{}?:#&*!|>%@`\"'-]|-(?=[^\s,\[\]{}]))(?:[^\s,\[\]{}?:#]|:(?=[^\s,\[\]{}\"'])|\?(?=\w)|(?<=\S)#"
    r"|[ \t]+(?=[^\s,\[\]{}?:#\"']))*"
)
"""A text without quotes in brackets, as far as it goes on its line."""
FOLD = re.compile(r"[ \t]*\n[ \t]*((?:\n[ \t]*)*)")
ESCAPE = re.compile(r"\\\n[ \t]*((?:\n[ \t]*)*)|\\(?:x(..)|u(.{4})|U(.{8})|(.))|%s" % FOLD.pattern)
ESCAPED = dict(zip('0abt\tnvfre "/\\N_LP', '\0\a\b\t\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029'))


class Unreadable(Exception):
    """A text that may hold keys that are not seen here; says where."""


class Reader:
    """Keys one below the other, all as far to the right; what belongs to a key stands further to the right, or is a list.

    Quotes and brackets alone may go on at the left, so where one begins must be known, and it is followed to its end.
    """

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def mapping(self) -> dict:
        """Raises Unreadable."""
        found: dict = {}
        left = indent = self._next()
        while indent >= 0:
            key = KEY.match(self.text, self.at)
            if indent != left or key is None:
                raise self._refusal()
            self.at = key.end()
            name = key.group(1)[1:-1] if key.group(1)[0] in "\"'" else key.group(1)
            found[name] = self._below(left) if self._is_over() else self._value(left)
            indent = self._next()
        return found

    def _refusal(self, at: int = -1, why: str = "") -> Unreadable:
        return Unreadable("line %d%s" % (self.text.count("\n", 0, self.at if at < 0 else at) + 1, why))

    def _next(self) -> int:
        """Go to the next line that says something, from the begin of one; how far to the right it stands, -1 for none."""
        found = ABOVE.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return len(found.group(1)) if self.at < len(self.text) else -1

    def _is_over(self) -> bool:
        """Whether nothing follows on this line."""
        return self.text[self.at] in "\n#"

    def _below(self, left: int) -> str:
        """What stands below a key that has nothing beside it: one value, or lines with dashes and keys."""
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
        """A value that begins here, of the key or dash that stands so far to the right, and the rest of its last line."""
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
        found = QUOTED.match(self.text, self.at)
        if found is None:
            raise self._refusal(why=", which has no end there")
        text = found.group()[1:-1]
        value = FOLD.sub(_folded, text).replace("''", "'") if found.group()[0] == "'" else ESCAPE.sub(self._escaped, text)
        self.at = found.end()
        return value

    def _escaped(self, found: Any) -> str:
        joined, two, four, eight, one, breaks = found.groups()
        if joined is not None:
            return "\n" * joined.count("\n")
        if breaks is not None:
            return _folded(found)
        try:
            return ESCAPED[one] if one else chr(int(two or four or eight, 16))
        except (KeyError, ValueError, OverflowError):
            raise self._refusal() from None

    def _brackets(self) -> None:
        """A list or mapping in brackets, to its end."""
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
        found = WORDS.match(self.text, self.at)
        if found is None:
            raise self._refusal()
        self.at = found.end()

    def _block(self, parent: int) -> None:
        """Lines that are text, whatever they look like: as far to the right as the first, or as the sign says."""
        found = BLOCK.match(self.text, self.at)
        if found is None:
            raise self._refusal()
        self.at = found.end()
        empty = EMPTY.match(self.text, self.at)
        assert empty is not None
        digit = found.group(1) or found.group(2)
        indent = parent + int(digit) if digit else len(empty.group(2))
        if not digit and max(map(len, empty.group(1).split("\n"))) > indent:
            raise self._refusal()
        if indent > parent:
            lines = re.compile(r"(?: {%d}.*\n| *\n)*" % indent).match(self.text, self.at)
            self.at = lines.end() if lines else self.at

    def _plain(self, parent: int) -> str:
        """A text without quotes, which goes on in lines further to the right up to a remark."""
        if self.text[self.at] in "&*!%@`?,]}" or re.compile(r"-[ \t\n]").match(self.text, self.at):
            raise self._refusal()
        value, goes_on = "", True
        while goes_on:
            end = self.text.index("\n", self.at)
            line = self.text[self.at : end]
            said = re.split(r"[ \t]+#", line)[0]
            if COLON.search(said):
                raise self._refusal()
            self.at = end + 1
            empty = EMPTY.match(self.text, self.at)
            assert empty is not None
            further = self.text[empty.end() : empty.end() + 1]
            goes_on = said == line and len(empty.group(2)) > parent and further not in ("", "#")
            value += said
            if goes_on:
                value += "\n" + empty.group(1)
                self.at = empty.end()
        value = FOLD.sub(_folded, value.rstrip(" \t"))
        return "" if value in NOTHING else value


def _folded(found: Any) -> str:
    """The end of a line is a space; empty lines below it stay."""
    return "\n" * found.groups()[-1].count("\n") or " "
