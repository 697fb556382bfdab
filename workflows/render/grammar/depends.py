"""Parser for `depends`: task results with `&&`, `||`, `!` and parentheses; a bare name means "succeeded, skipped or daemoned"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workflows.render.grammar.nesting import NestedParser

RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed")
BARE = ("Succeeded", "Skipped", "Daemoned")
_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z0-9][-A-Za-z0-9]*(?:\.[A-Za-z]+)?)|(?P<symbol>&&|\|\||!|\(|\)))")


class DependsError(ValueError):
    """Exception: a text is not a valid `depends` expression."""


Results = Mapping[str, frozenset[str]]
Test = Callable[[Results], bool]


@dataclass(frozen=True, slots=True)
class Depends:
    """A parsed `depends` expression: the tasks that it names, in order, and a function that tests it against the tasks' results."""

    tasks: tuple[str, ...]
    holds: Test


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise DependsError(f"unexpected '{text[position:].strip()[:10]}' at position {position + 1}")
        tokens.append(("name", match["name"]) if match["name"] else ("symbol", match["symbol"]))
        position = match.end()
    return tokens


class _DependsParser(NestedParser):
    error = DependsError

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tokens = _tokens(text)
        self.position = 0
        self.tasks: list[str] = []

    def take(self, symbol: str) -> bool:
        if self.position < len(self.tokens) and self.tokens[self.position] == ("symbol", symbol):
            self.position += 1
            return True
        return False

    def disjunction(self) -> Test:
        parts = [self.conjunction()]
        while self.take("||"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else lambda results: any(part(results) for part in parts)

    def conjunction(self) -> Test:
        parts = [self.single()]
        while self.take("&&"):
            parts.append(self.single())
        return parts[0] if len(parts) == 1 else lambda results: all(part(results) for part in parts)

    def single(self) -> Test:
        if self.take("!"):
            with self.deeper():
                inner = self.single()
            return lambda results: not inner(results)
        if self.take("("):
            with self.deeper():
                group = self.disjunction()
            if not self.take(")"):
                raise DependsError("a parenthesis is not closed")
            return group
        if self.position == len(self.tokens):
            raise DependsError("the expression ends where a task is expected")
        kind, name = self.tokens[self.position]
        if kind != "name":
            raise DependsError(f"'{name}' stands where a task is expected")
        self.position += 1
        return self.result_of(name)

    def result_of(self, name: str) -> Test:
        task, _, result = name.partition(".")
        if result and result not in RESULTS:
            raise DependsError(f"task result '{result}' for task '{task}' is invalid (one of {', '.join(RESULTS)})")
        if task not in self.tasks:
            self.tasks.append(task)
        accepted = frozenset({result} if result else BARE)
        return lambda results: bool(results[task] & accepted)


@lru_cache(maxsize=4096)
def read(text: str) -> Depends:
    """Return a parsed `depends` expression. Raises DependsError if the text is invalid."""
    reader = _DependsParser(text)
    test = reader.disjunction()
    if reader.position < len(reader.tokens):
        raise DependsError(f"unexpected '{reader.tokens[reader.position][1]}' after a complete expression")
    return Depends(tuple(reader.tasks), test)


def parents(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the tasks that a task names in `depends` or `dependencies`. Raises DependsError."""
    return read(str(task["depends"])).tasks if task.get("depends") else tuple(task.get("dependencies") or ())


def classic(dependencies: Mapping[str, frozenset[str]]) -> Depends:
    """Return a `dependencies` list in the form of a parsed `depends` expression, which holds if all its tasks succeeded.

    `dependencies` maps each task to further results that its `continueOn` also accepts.
    """
    accepted = {task: frozenset(BARE) | accepted_too for task, accepted_too in dependencies.items()}
    return Depends(tuple(accepted), lambda results: all(bool(results[task] & any_of) for task, any_of in accepted.items()))
