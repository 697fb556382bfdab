"""Tokenizer for `when` conditions, as the controller's lexer works; what is outside the supported subset raises WhenError."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from workflows.render.grammar.gotext import display


class WhenError(ValueError):
    """The text is not a valid condition; `parse` is true if parsing failed, false if evaluation failed."""

    def __init__(self, sentence: str, *, parse: bool) -> None:
        super().__init__(sentence)
        self.parse = parse


@dataclass(frozen=True, slots=True)
class Token:
    """A token; kinds have the names that the controller's messages use."""

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
    """Return the tokens of a condition in order. Raises WhenError where the controller's lexer fails."""
    all_tokens: list[Token] = []
    position = 0
    while position < len(text):
        if space := _SPACE.match(text, position):
            position = space.end()
            continue
        token, position = _token(text, position, all_tokens[-1].kind if all_tokens else "UNKNOWN")
        all_tokens.append(token)
    depth = sum({"CLAUSE": 1, "CLAUSE_CLOSE": -1}.get(token.kind, 0) for token in all_tokens)
    if depth:
        raise WhenError("Unbalanced parenthesis", parse=True)
    return all_tokens


def _token(text: str, position: int, kind_before: str) -> tuple[Token, int]:
    char = text[position]
    if char in "()":
        return Token("CLAUSE" if char == "(" else "CLAUSE_CLOSE", char), position + 1
    if char == ",":
        return Token("SEPARATOR", ","), position + 1
    if char in "'\"":
        return _quoted(text, position)
    if char == "[":
        raise WhenError("names in brackets are not supported by both engines", parse=True)
    if number := _NUMBER.match(text, position):
        return _number(number), number.end()
    if word := _WORD.match(text, position):
        return _word(word[0]), word.end()
    symbol = _SYMBOL.match(text, position)
    if symbol is None:
        raise WhenError(f"Invalid token: '{char}'", parse=True)
    return _symbol(symbol[0], kind_before), symbol.end()


def _quoted(text: str, position: int) -> tuple[Token, int]:
    out: list[str] = []
    index = position + 1
    while index < len(text):
        if text[index] == "\\" and index + 1 < len(text):
            out.append(text[index + 1])
            index += 2
        elif text[index] in "'\"":
            value = "".join(out)
            if _DATE.match(value):
                raise WhenError(f"'{value}' reads as a date, which is not supported by both engines", parse=True)
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
        raise WhenError(f"the operator '{symbol}' is not supported by both engines", parse=True)
    raise WhenError(f"Invalid token: '{symbol}'", parse=True)


def check_order(all_tokens: list[Token]) -> None:
    """Raise WhenError if a token cannot follow the one before it."""
    previous = Token("UNKNOWN", "<nil>")
    for token in all_tokens:
        if token.kind not in _NEXT[previous.kind]:
            ends = f"{previous.kind} [{display(previous.value)}] to {token.kind} [{display(token.value)}]"
            raise WhenError(f"Cannot transition token types from {ends}", parse=True)
        previous = token
    if previous.kind in ("MODIFIER", "COMPARATOR", "LOGICALOP", "PREFIX"):
        raise WhenError("Unexpected end of expression", parse=True)
