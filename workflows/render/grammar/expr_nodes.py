"""The tree of a read expression, and what can be said about it without evaluating: parts, names it reads, unknown types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A number (int or float), string, boolean or nil."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier; `#` is the element inside a closure."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """`base.key`, `base["key"]` or `base[0]`; optional is `?.`."""

    base: Node
    key: Node
    optional: bool


@dataclass(frozen=True, slots=True)
class Unary:
    """`!x`, `not x`, `-x`, `+x`."""

    symbol: str
    inner: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands; `and`/`or` are read as `&&`/`||`."""

    symbol: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice:
    """`test ? yes : no`; only the taken branch is evaluated."""

    test: Node
    yes: Node
    no: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function known by its (dotted) name."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Array:
    """`[a, b]`."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Closure:
    """`{ body }` as the argument of `map`, `filter`, `all`, `any`."""

    body: Node


Node = Literal | Name | Member | Unary | Binary | Choice | Call | Array | Closure


def dotted(node: Node) -> str | None:
    """`a.b.c` of a chain of constant members, else None."""
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Member) and isinstance(node.key, Literal) and isinstance(node.key.value, str) and not node.optional:
        base = dotted(node.base)
        return None if base is None else f"{base}.{node.key.value}"
    return None


def parts(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node."""
    if isinstance(node, Member):
        return (node.base, node.key)
    if isinstance(node, Unary):
        return (node.inner,)
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Choice):
        return (node.test, node.yes, node.no)
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Array):
        return node.items
    return (node.body,) if isinstance(node, Closure) else ()


def references(node: Node, guarded: bool = False) -> Iterator[tuple[str, bool]]:
    """Dotted names that the expression reads, each with whether a `??` or `?.` guards it."""
    name = dotted(node)
    if name is not None:
        if name != "#" and not name.startswith("#."):
            yield name, guarded
        return
    if isinstance(node, Binary) and node.symbol == "??":
        yield from references(node.left, True)
        yield from references(node.right, guarded)
        return
    if isinstance(node, Member):
        guarded = guarded or node.optional
    for part in parts(node):
        yield from references(part, guarded)


def is_dynamic(node: Node) -> bool:
    """Whether the controller knows no type for the value before it runs (parsed JSON, closure elements)."""
    if isinstance(node, Call):
        return node.function in ("fromJSON", "jsonpath")
    if isinstance(node, Name):
        return node.name == "#"
    if isinstance(node, (Member, Binary, Choice, Unary)):
        return any(is_dynamic(part) for part in parts(node) if not isinstance(part, Literal))
    return False
