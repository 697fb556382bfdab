"""Evaluate `when` conditions. Argo pastes values into them as text, so a bare word equals the same word in quotes.

The supported subset behaves exactly as in Argo's controller; everything else raises WhenError. It has literals, bare words, `== !=
< <= > >= in =~ !~`, `&& || !`, `+ - * / % **` and parentheses. Not supported are dates (the controller turns quoted dates into
numbers), `a.b`, bit operators, `? :` and `??`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workflows.render.grammar.gotext import display
from workflows.render.grammar.nesting import DEEPEST


class WhenError(ValueError):
    """Exception: a condition cannot be parsed (`parse` is true) or evaluated (`parse` is false)."""

    def __init__(self, sentence: str, *, parse: bool) -> None:
        super().__init__(sentence)
        self.parse = parse


@dataclass(frozen=True, slots=True)
class Token:
    """A lexical token of a condition; `kind` is the name that messages of Argo's controller use."""

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
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|[0-9.]+")
_WORD = re.compile(r"[^\W\d_][\w.]*")
_SYMBOL = re.compile(r"[^\s\w()\[\]'\"]+|_+")
_MOST = 200
_DATE = re.compile(r"\d{4}-\d\d-\d\d|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d|\d{1,2}:\d\d(AM|PM)$")


def _tokens(text: str) -> list[Token]:
    """Return the tokens of a condition in order. Raises WhenError where the controller's lexer would fail."""
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
        return _number(number[0]), number.end()
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


def _number(text: str) -> Token:
    try:
        value = float(int(text, 16)) if text.startswith("0x") else float(text)
        if not math.isfinite(value):
            raise OverflowError
        return Token("NUMERIC", value)
    except (ValueError, OverflowError):
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


def _check_order(all_tokens: list[Token]) -> None:
    """Raise WhenError if a token may not follow the preceding one, or if the last token expects another."""
    previous = Token("UNKNOWN", "<nil>")
    for token in all_tokens:
        if token.kind not in _NEXT[previous.kind]:
            ends = f"{previous.kind} [{display(previous.value)}] to {token.kind} [{display(token.value)}]"
            raise WhenError(f"Cannot transition token types from {ends}", parse=True)
        previous = token
    if previous.kind in ("MODIFIER", "COMPARATOR", "LOGICALOP", "PREFIX"):
        raise WhenError("Unexpected end of expression", parse=True)


_LEVELS: tuple[tuple[str, frozenset[str]], ...] = (
    ("LOGICALOP", frozenset({"||"})),
    ("LOGICALOP", frozenset({"&&"})),
    ("COMPARATOR", frozenset(COMPARATORS | {"in"})),
    ("MODIFIER", frozenset({"+", "-"})),
    ("MODIFIER", frozenset({"*", "/", "%"})),
    ("MODIFIER", frozenset({"**"})),
)
# constructs that Go's RE2 and Python's re interpret differently, or that RE2 lacks
_PATTERN_REFUSED = re.compile(r"\(\?|\\[^.dDwWsS\\^$*+?()\[\]{}|/-]|[*+?}][+]")


_REPEAT = re.compile(r"[*+?{]")
_LAST_REPEAT = re.compile(r"[*+?]$")
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_MOST_STEPS = 20_000_000


Thunk = Callable[[], Any]


def _check_size(all_tokens: list[Token]) -> None:
    """Raise WhenError if a condition, into which a step's text may be pasted, is deeper or longer than the evaluation's stack."""
    depth = deepest = operations = 0
    for token in all_tokens:
        depth += {"CLAUSE": 1, "CLAUSE_CLOSE": -1}.get(token.kind, 0)
        deepest = max(deepest, depth)
        operations += token.kind in ("PREFIX", "MODIFIER", "COMPARATOR", "LOGICALOP")
    if deepest > DEEPEST or operations > _MOST:
        raise WhenError(f"it is nested deeper than {DEEPEST} levels, or has more than {_MOST} operators", parse=True)


class _WhenParser:
    """Recursive-descent parser over tokens that builds functions for later evaluation."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    def peek(self) -> Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def level(self, index: int) -> Thunk:
        if index == len(_LEVELS):
            return self.value()
        kind, symbols = _LEVELS[index]
        left = self.level(index + 1)
        while (token := self.peek()) is not None and token.kind == kind and token.value in symbols:
            self.position += 1
            left = _binary(str(token.value), left, self.level(index + 1))
        return left

    def listing(self) -> Thunk:
        items = [self.level(0)]
        while (token := self.peek()) is not None and token.kind == "SEPARATOR":
            self.position += 1
            items.append(self.level(0))
        return items[0] if len(items) == 1 else lambda: [item() for item in items]

    def value(self) -> Thunk:
        token = self.peek()
        if token is None or token.kind == "CLAUSE_CLOSE":
            raise WhenError("Unexpected end of expression", parse=True)
        self.position += 1
        if token.kind == "CLAUSE":
            inner = self.listing()
            self.position += 1
            return inner
        if token.kind == "PREFIX":
            return _prefix(str(token.value), self.value())
        return lambda: token.value


def _need(check: bool, value: Any, symbol: str, family: str) -> None:
    if not check:
        raise WhenError(f"Value '{display(value)}' cannot be used with the {family} '{symbol}'", parse=False)


def _prefix(symbol: str, inner: Thunk) -> Thunk:
    def run() -> Any:
        value = inner()
        if symbol == "!":
            _need(isinstance(value, bool), value, symbol, "prefix")
            return not value
        _need(isinstance(value, float), value, symbol, "prefix")
        return -value

    return run


def _binary(symbol: str, left: Thunk, right: Thunk) -> Thunk:
    if symbol in ("&&", "||"):
        return _logical(symbol, left, right)
    if symbol in MODIFIERS:
        return lambda: _arithmetic(symbol, left(), right())
    return lambda: _compare(symbol, left(), right())


def _logical(symbol: str, left: Thunk, right: Thunk) -> Thunk:
    def run() -> bool:
        first = left()
        if first is (symbol == "||"):
            return bool(first)
        second = right()
        for value in (first, second):
            _need(isinstance(value, bool), value, symbol, "logical operator")
        return bool(second)

    return run


def _arithmetic(symbol: str, left: Any, right: Any) -> Any:
    if symbol == "+" and (isinstance(left, str) or isinstance(right, str)):
        return display(left) + display(right)
    for value in (left, right):
        if not isinstance(value, float):
            raise WhenError(
                f"Value '{display(value)}' cannot be used with the modifier '{symbol}', it is not a number", parse=False
            )
    try:
        result = _OPERATIONS[symbol](left, right)
    except (ZeroDivisionError, OverflowError, ValueError) as err:
        raise WhenError(f"arithmetic has no finite result: {err}", parse=False) from None
    return float(result)


_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": math.fmod,
    "**": math.pow,
}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _same(left: Any, right: Any) -> bool:
    # as in the controller, values of different types are never equal: 1 == '1' is false
    return type(left) is type(right) and bool(left == right)


def _compare(symbol: str, left: Any, right: Any) -> bool:
    if symbol in ("==", "!="):
        return _same(left, right) is (symbol == "==")
    if symbol == "in":
        _need(isinstance(right, list), right, symbol, "comparator")
        return any(_same(left, item) for item in right)
    if symbol in ("=~", "!~"):
        return _matches(left, right) is (symbol == "=~")
    kinds = (float, str)
    _need(isinstance(left, kinds) and type(left) is type(right), left, symbol, "comparator")
    return _ORDER[symbol](left, right)


def _steps(text: str, pattern: str) -> int:
    """Return an upper bound for the steps of Python's backtracking match of a pattern whose repeats hold no repeats.

    Go's RE2 needs linear time for every pattern. A repeat at the end of a pattern always matches, so that nothing is tried again.
    """
    repeats = len(_REPEAT.findall(_LAST_REPEAT.sub("", pattern))) + (not pattern.startswith("^") or "|" in pattern)
    return int((len(text) + 1) ** min(repeats, 20) * (pattern.count("|") + 1) * (len(pattern) + 1))


def _matches(left: Any, right: Any) -> bool:
    for value in (left, right):
        _need(isinstance(value, str), value, "=~", "comparator")
    if _PATTERN_REFUSED.search(right):
        raise WhenError(f"the pattern '{right}' is not supported by both engines", parse=False)
    if _REPEATED_GROUP.search(right) or _steps(left, right) > _MOST_STEPS:
        raise WhenError(f"the pattern '{right[:80]}' may take too long on a text of {len(left)} characters", parse=False)
    try:
        # Go's `$` matches only at the very end, Python's also before a last newline; Go's classes are ASCII
        return re.search(re.sub(r"(?<!\\)\$$", r"\\Z", right), left, re.ASCII) is not None
    except re.error as err:
        raise WhenError(f"Unable to compile regexp pattern '{right}': {err}", parse=False) from None


def compile_when(text: str) -> Thunk:
    """Return a function that evaluates a condition. Raises WhenError (`parse` is true) if the text is not a condition."""
    all_tokens = _tokens(text)
    _check_order(all_tokens)
    _check_size(all_tokens)
    reader = _WhenParser(all_tokens)
    if not all_tokens:
        raise WhenError("Unexpected end of expression", parse=True)
    result = reader.listing()
    if reader.peek() is not None:
        raise WhenError(f"unexpected '{display(all_tokens[reader.position].value)}'", parse=True)
    return result


def should_execute(text: str) -> bool:
    """Return True if a condition, in which all tags are already replaced, holds; an empty condition holds.

    Raises WhenError with the sentence that the controller writes into the node, which then ends as Error, not Skipped.
    """
    if text == "":
        return True
    try:
        value = compile_when(text)()
    except WhenError as err:
        hint = ' (hint: try wrapping the affected expression in quotes ("))' if "Invalid token" in str(err) else ""
        start = f"Invalid 'when' expression '{text}'" if err.parse else f"Failed to evaluate 'when' expresion '{text}'"
        raise WhenError(f"{start}: {err}{hint}", parse=err.parse) from None
    if not isinstance(value, bool):
        raise WhenError(f"Expected boolean evaluation for '{text}'. Got {display(value)}", parse=False)
    return value
