"""Base of the parsers that call themselves for each level of an expression, which is hostile until parsed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

DEEPEST = 40
"""Largest accepted number of nesting levels."""


class NestedParser:
    """A parser by recursive descent that counts its levels. `error` is the exception for an expression that is too deep."""

    error: type[ValueError] = ValueError

    def __init__(self) -> None:
        self.depth = 0

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """Count one level of nesting inside a `with` block. Raises `error` if the expression is too deep."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"it is nested deeper than {DEEPEST} levels")
        yield
        self.depth -= 1
