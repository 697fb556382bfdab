"""Tokens of a `when` condition, as the controller's lexer makes them; what is outside of the subset is a WhenError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from workflows.render.grammar.gotext import display


class WhenError(ValueError):
    """The text is no valid condition (`parse` tells if it fell at reading, or at evaluating)."""

    def __init__(self, sentence: str, *, parse: bool) -> None:
        super().__init__(sentence)
        self.parse = parse


@dataclass(frozen=True, slots=True)
class Token:
    """One token; kinds carry the names that the controller's messages use."""

    kind: str
    value: Any


_VALUES = ("NUMERIC", "BOOLEAN", "STRING", "VARIABLE", "CLAUSE")
_AFTER_VALUE = ("MODIFIER", "COMPARATOR", "LOGICALOP", "CLAUSE_CLOSE", "SEPARATOR")
_NEXT: dict[str, tuple[str, ...]] = {
    "UNKNOWN": ("PREFIX", *_VALUES),
    "CLAUSE": ("PREFIX", *_VALUES, "CLAUSE_CLOSE"),
    "CLAUSE_CLOSE": _AFTER_VALUE,
    "NUMERIC": _AFTER_VALUE,
    "BOOLEAN": _AFTER_VALUE,
    "STRING": _AFTER_VALUE,
    "VARIABLE": _AFTER_VALUE,
    "MODIFIER": ("PREFIX", *_VALUES),
    "COMPARATOR": ("PREFIX", *_VALUES),
    "LOGICALOP": ("PREFIX", *_VALUES),
    "PREFIX": ("NUMERIC", "BOOLEAN", "VARIABLE", "CLAUSE"),
    "SEPARATOR": ("PREFIX", *_VALUES),
}
COMPARATORS = {"==", "!=", ">", ">=", "<", "<=", "=~", "!~"}
MODIFIERS = {"+", "-", "*", "/", "%", "**"}
_UNSUPPORTED = {"?", ":", "??", "&", "|", "^", "<<", ">>", "~"}
_SPACE = re.compile(r"\s+")
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|[\d.]+")
_WORD = re.compile(r"[^\W\d_][\w.]*")
_SYMBOL = re.compile(r"[^\s\w()\[\]'\"]+|_+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d|\d{1,2}:\d\d(AM|PM)$")


def tokens(text: str) -> list[Token]:
    """The tokens of a condition in the order written; WhenError where the controller's lexer errs."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
            continue
        token, at = _token(text, at, found[-1].kind if found else "UNKNOWN")
        found.append(token)
    depth = sum({"CLAUSE": 1, "CLAUSE_CLOSE": -1}.get(token.kind, 0) for token in found)
    if depth:
        raise WhenError("Unbalanced parenthesis", parse=True)
    return found


def _token(text: str, at: int, before: str) -> tuple[Token, int]:
    char = text[at]
    if char in "()":
        return Token("CLAUSE" if char == "(" else "CLAUSE_CLOSE", char), at + 1
    if char == ",":
        return Token("SEPARATOR", ","), at + 1
    if char in "'\"":
        return _quoted(text, at)
    if char == "[":
        raise WhenError("names in brackets are outside of the executed subset", parse=True)
    if number := _NUMBER.match(text, at):
        return _number(number), number.end()
    if word := _WORD.match(text, at):
        return _word(word[0]), word.end()
    symbol = _SYMBOL.match(text, at)
    if symbol is None:
        raise WhenError(f"Invalid token: '{char}'", parse=True)
    return _symbol(symbol[0], before), symbol.end()


def _quoted(text: str, at: int) -> tuple[Token, int]:
    out: list[str] = []
    index = at + 1
    while index < len(text):
        if text[index] == "\\" and index + 1 < len(text):
            out.append(text[index + 1])
            index += 2
        elif text[index] in "'\"":
            value = "".join(out)
            if _DATE.match(value):
                raise WhenError(f"'{value}' reads as a date, which is outside of the executed subset", parse=True)
            return Token("STRING", value), index + 1
        else:
            out.append(text[index])
            index += 1
    raise WhenError("Unclosed string literal", parse=True)


def _number(match: re.Match[str]) -> Token:
    text = match[0]
    try:
        return Token("NUMERIC", float(int(text, 16)) if text.startswith("0x") else float(text))
    except ValueError:
        raise WhenError(f"Unable to parse numeric value '{text}' to float64", parse=True) from None


def _word(word: str) -> Token:
    if word in ("true", "false"):
        return Token("BOOLEAN", word == "true")
    if word in ("in", "IN"):
        return Token("COMPARATOR", "in")
    if "." in word:
        raise WhenError(f"Unable to access unexported field in token '{word}' (quote a value that has a dot)", parse=True)
    return Token("VARIABLE", word)


def _symbol(symbol: str, before: str) -> Token:
    if "PREFIX" in _NEXT[before] and symbol in ("!", "-"):
        return Token("PREFIX", symbol)
    for kind, known in (("MODIFIER", MODIFIERS), ("LOGICALOP", {"&&", "||"}), ("COMPARATOR", COMPARATORS)):
        if symbol in known:
            return Token(kind, symbol)
    if symbol in _UNSUPPORTED:
        raise WhenError(f"the operator '{symbol}' is outside of the executed subset", parse=True)
    raise WhenError(f"Invalid token: '{symbol}'", parse=True)


def check_order(found: list[Token]) -> None:
    """WhenError where one kind of token cannot follow another."""
    before = Token("UNKNOWN", "<nil>")
    for token in found:
        if token.kind not in _NEXT[before.kind]:
            ends = f"{before.kind} [{display(before.value)}] to {token.kind} [{display(token.value)}]"
            raise WhenError(f"Cannot transition token types from {ends}", parse=True)
        before = token
    if before.kind in ("MODIFIER", "COMPARATOR", "LOGICALOP", "PREFIX"):
        raise WhenError("Unexpected end of expression", parse=True)
