"""Syntax tree of a parsed expression, and what it shows without evaluation: its parts, the names it reads, dynamic types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant in an expression: number (int or float), string, boolean or nil."""

    value: Any


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name in an expression; the name `#` is the element that a closure is called with."""

    name: str


@dataclass(frozen=True, slots=True)
class MemberAccess:
    """An access `base.key`, `base["key"]` or `base[0]` in an expression; `optional` is true for `?.`."""

    base: ExprNode
    key: ExprNode
    optional: bool


@dataclass(frozen=True, slots=True)
class Unary:
    """An operation on one operand: `!x`, `not x`, `-x`, `+x`."""

    symbol: str
    inner: ExprNode


@dataclass(frozen=True, slots=True)
class Binary:
    """An operation on two operands; `and` and `or` are stored as `&&` and `||`."""

    symbol: str
    left: ExprNode
    right: ExprNode


@dataclass(frozen=True, slots=True)
class Conditional:
    """An expression `test ? yes : no`, of which only the taken branch is evaluated."""

    test: ExprNode
    yes: ExprNode
    no: ExprNode


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function by its name, which may be dotted."""

    function: str
    arguments: tuple[ExprNode, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """A list in an expression: `[a, b]`."""

    items: tuple[ExprNode, ...]


@dataclass(frozen=True, slots=True)
class Closure:
    """A closure `{ body }`, which is an argument of `map`, `filter`, `all` or `any`."""

    body: ExprNode


ExprNode = Literal | Identifier | MemberAccess | Unary | Binary | Conditional | FunctionCall | Array | Closure


def dotted(node: ExprNode) -> str | None:
    """Return `a.b.c` if the node is a name or a chain of constant string keys, else None."""
    if isinstance(node, Identifier):
        return node.name
    if isinstance(node, MemberAccess) and isinstance(node.key, Literal) and isinstance(node.key.value, str) and not node.optional:
        base = dotted(node.base)
        return None if base is None else f"{base}.{node.key.value}"
    return None


def parts(node: ExprNode) -> tuple[ExprNode, ...]:
    """Return the direct children of a node of the syntax tree."""
    if isinstance(node, MemberAccess):
        return (node.base, node.key)
    if isinstance(node, Unary):
        return (node.inner,)
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Conditional):
        return (node.test, node.yes, node.no)
    if isinstance(node, FunctionCall):
        return node.arguments
    if isinstance(node, Array):
        return node.items
    return (node.body,) if isinstance(node, Closure) else ()


def references(node: ExprNode, guarded: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield the dotted names that an expression reads, each with True if a `??` or `?.` allows it to be absent."""
    name = dotted(node)
    if name is not None:
        if name != "#" and not name.startswith("#."):
            yield name, guarded
        return
    if isinstance(node, Binary) and node.symbol == "??":
        yield from references(node.left, True)
        yield from references(node.right, guarded)
        return
    if isinstance(node, MemberAccess):
        guarded = guarded or node.optional
    for part in parts(node):
        yield from references(part, guarded)


def is_dynamic(node: ExprNode) -> bool:
    """Return True if Argo's controller learns the value's type only by evaluation, as for parsed JSON and closure elements."""
    if isinstance(node, FunctionCall):
        return node.function in ("fromJSON", "jsonpath")
    if isinstance(node, Identifier):
        return node.name == "#"
    if isinstance(node, (MemberAccess, Binary, Conditional, Unary)):
        return any(is_dynamic(part) for part in parts(node) if not isinstance(part, Literal))
    return False
