"""Evaluator for `when` conditions: values are pasted as text and then compared, so a bare word equals the quoted one.

The supported subset behaves exactly as in Argo's controller; everything else is a WhenError. It has literals, bare words, `== != <
<= > >= in =~ !~`, `&& || !`, `+ - * / % **` and parentheses. Not supported are dates (the controller turns quoted dates into
numbers), `a.b`, bit operators, `? :` and `??`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from workflows.render.grammar.gotext import display
from workflows.render.grammar.when_tokens import COMPARATORS, MODIFIERS, Token, WhenError, check_order, tokens

__all__ = ["WhenError", "compile_when", "should_execute"]

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


Thunk = Callable[[], Any]


class _Reader:
    """Recursive descent over the tokens; it builds closures and evaluates nothing."""

    def __init__(self, found: list[Token]) -> None:
        self.found = found
        self.at = 0

    def peek(self) -> Token | None:
        return self.found[self.at] if self.at < len(self.found) else None

    def level(self, index: int) -> Thunk:
        if index == len(_LEVELS):
            return self.value()
        kind, symbols = _LEVELS[index]
        left = self.level(index + 1)
        while (token := self.peek()) is not None and token.kind == kind and token.value in symbols:
            self.at += 1
            left = _binary(str(token.value), left, self.level(index + 1))
        return left

    def listing(self) -> Thunk:
        items = [self.level(0)]
        while (token := self.peek()) is not None and token.kind == "SEPARATOR":
            self.at += 1
            items.append(self.level(0))
        return items[0] if len(items) == 1 else lambda: [item() for item in items]

    def value(self) -> Thunk:
        token = self.peek()
        if token is None or token.kind == "CLAUSE_CLOSE":
            raise WhenError("Unexpected end of expression", parse=True)
        self.at += 1
        if token.kind == "CLAUSE":
            inner = self.listing()
            self.at += 1
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


def _matches(left: Any, right: Any) -> bool:
    for value in (left, right):
        _need(isinstance(value, str), value, "=~", "comparator")
    if _PATTERN_REFUSED.search(right):
        raise WhenError(f"the pattern '{right}' is not supported by both engines", parse=False)
    try:
        # Go's `$` matches only at the very end, Python's also before a last newline; Go's classes are ASCII
        return re.search(re.sub(r"(?<!\\)\$$", r"\\Z", right), left, re.ASCII) is not None
    except re.error as err:
        raise WhenError(f"Unable to compile regexp pattern '{right}': {err}", parse=False) from None


def compile_when(text: str) -> Thunk:
    """Parse a condition and return a function that evaluates it. Raises WhenError(parse=True)."""
    all_tokens = tokens(text)
    check_order(all_tokens)
    reader = _Reader(all_tokens)
    if not all_tokens:
        raise WhenError("Unexpected end of expression", parse=True)
    result = reader.listing()
    if reader.peek() is not None:
        raise WhenError(f"unexpected '{display(all_tokens[reader.at].value)}'", parse=True)
    return result


def should_execute(text: str) -> bool:
    """Return True if a task with this (already substituted) condition runs; an empty condition holds.

    Raises WhenError with the sentence that the controller writes into the node, which is then an Error, not Skipped.
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
