"""Substitute `{{...}}` in model values with the variables of a scope.

A variable with the value None is an absent optional: the output of a task that was skipped or omitted and has no default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from workflows.engines.local.manifest_parser import map_strings
from workflows.render.grammar import expr, expr_nodes
from workflows.render.grammar.expr_eval import ExprError, evaluate
from workflows.render.grammar.gotext import json_text
from workflows.render.grammar.tags import Tag, replace

_T = TypeVar("_T")
Scope = Mapping[str, str | None]
LATE = frozenset(
    ("item", "retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message", "workflow.status",
     "workflow.failures")
)  # fmt: skip  # variables that only exist later: an expression that reads one early is left for then


class SubstitutionError(ValueError):
    """Exception: a tag that must have a value has none; the text becomes the node's message."""


@dataclass(frozen=True, slots=True)
class Strictness:
    """Rule that says which tags must have a value: those whose first word is in `words`, or all tags."""

    words: tuple[str, ...] = ()
    everything: bool = False

    def wants(self, name: str) -> bool:
        """Return True if the variable `name` must have a value."""
        return self.everything or name.split(".", 1)[0] in self.words


LENIENT = Strictness()
TASKS = Strictness(("tasks", "steps"))
ALL = Strictness(everything=True)


@lru_cache(maxsize=4096)
def _read(text: str) -> expr_nodes.ExprNode:
    return expr.read(text)


@lru_cache(maxsize=4096)
def _references(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, guarded in expr_nodes.references(_read(text)) if not guarded))


def read_expression(text: str) -> expr_nodes.ExprNode:
    """Return a parsed expression, from a cache if possible. Raises SubstitutionError if it is outside the supported subset."""
    try:
        return _read(text)
    except expr.ExprSyntaxError as err:
        raise SubstitutionError(f"failed to evaluate expression: {err}\n | {text}") from None


def _simple(tag: Tag, scope: Scope, strict: Strictness) -> str | None:
    name = tag.body
    if name in scope:
        value = scope[name]
        if value is None:
            sentence = "output is an absent optional (skipped/omitted node with no default)"
            raise SubstitutionError(f"unable to substitute {{{{{tag.text}}}}}: {sentence}")
        return value
    if strict.wants(name):
        raise SubstitutionError(f"failed to resolve {{{{{tag.text}}}}}")
    return None


def _expression(tag: Tag, scope: Scope, strict: Strictness) -> str | None:
    node = read_expression(tag.body)
    missing = [name for name in _references(tag.body) if name not in scope]
    for name in missing:
        if strict.wants(name):
            raise SubstitutionError(f"failed to evaluate expression: {name} is missing")
    lenient = bool(missing) or strict == LENIENT
    if any(name in LATE or name.startswith("item.") for name in missing):
        return None
    try:
        value = evaluate(node, scope)
    except ExprError as err:
        if lenient:
            return None
        raise SubstitutionError(f"failed to evaluate expression: {err}") from None
    if value is None:
        if lenient:
            return None
        raise SubstitutionError(f'failed to evaluate expression "{tag.body}"')
    try:
        return value if isinstance(value, str) else json_text(value)
    except ValueError as err:  # an infinite number, which JSON does not have
        raise SubstitutionError(f"failed to evaluate expression: {err}") from None


def resolver(scope: Scope, strict: Strictness) -> Callable[[str], str]:
    """Return a function that returns a text with its tags substituted."""

    def tag(template_tag: Tag) -> str | None:
        return _expression(template_tag, scope, strict) if template_tag.expression else _simple(template_tag, scope, strict)

    return lambda text: replace(text, tag) if "{{" in text else text


def substitute(value: _T, scope: Scope, strict: Strictness = LENIENT) -> _T:
    """Return `value` with the tags in all its texts replaced. Raises SubstitutionError if a tag must have a value and has none."""
    return map_strings(value, resolver(scope, strict))


def boolean(text: str, scope: Mapping[str, Any]) -> bool:
    """Return the value of an expression without braces, of a retry or hook, as a bool.

    Raises SubstitutionError, with the controller's sentence, if it fails or is no boolean.
    """
    node = read_expression(text)
    try:
        value = evaluate(node, scope)
    except ExprError as err:
        raise SubstitutionError(f"unable to evaluate expression '{text}': {err}") from None
    if not isinstance(value, bool):
        raise SubstitutionError(f"unable to cast expression result '{value}' to bool")
    return value
