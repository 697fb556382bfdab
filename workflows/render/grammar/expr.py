"""Parser for the supported subset of expr-lang, which `{{= ... }}`, retry and hook expressions use."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from workflows.render.grammar import expr_nodes
from workflows.render.grammar.gotext import LARGEST_INTEGER
from workflows.render.grammar.nesting import NestedParser


class ExprSyntaxError(ValueError):
    """Exception: a text is not an expression of the supported subset."""


FUNCTIONS = {  # name -> how many arguments
    "asInt": 1, "asFloat": 1, "int": 1, "float": 1, "string": 1, "len": 1, "toJson": 1, "fromJSON": 1, "jsonpath": 2,
    "map": 2, "filter": 2, "all": 2, "any": 2, "trim": 1, "upper": 1, "lower": 1,
    "sprig.trim": 1, "sprig.upper": 1, "sprig.lower": 1, "sprig.repeat": 2,
}  # fmt: skip
CLOSURES = frozenset({"map", "filter", "all", "any"})
# binding strengths as in expr-lang's own parser
_BINARY = {
    "||": 10, "or": 10, "&&": 15, "and": 15,
    "==": 20, "!=": 20, "<": 20, ">": 20, "<=": 20, ">=": 20, "in": 20, "contains": 20, "startsWith": 20, "endsWith": 20,
    "+": 30, "-": 30, "*": 60, "/": 60, "%": 60, "**": 100, "??": 500,
}  # fmt: skip
_UNARY = {"!": 50, "not": 50, "-": 90, "+": 90}
_WORDS = {"or": "||", "and": "&&", "not": "!"}
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d+(?:[eE][-+]?\d+)?|\d+)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*|\#)
    |(?P<symbol>\?\?|\?\.|\*\*|==|!=|<=|>=|&&|\|\||[-+*/%<>!?:()\[\]{},.]))""",
    re.VERBOSE,
)
_MOST = 200
"""Largest accepted number of operations; expressions are hostile until parsed."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def _string(text: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise ExprSyntaxError(f"the escape '\\{match[1]}' is not supported by both engines")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", unescaped, text[1:-1], flags=re.DOTALL)


def _number(text: str) -> int | float:
    value = float(text) if "." in text or len(text) > 30 else int(text)
    if (not -LARGEST_INTEGER <= value <= LARGEST_INTEGER and "." not in text) or value == math.inf:
        raise ExprSyntaxError(f"the number {text[:20]}… does not fit into 64 bits")
    return value


class _ExprParser(NestedParser):
    error = ExprSyntaxError

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.position = 0
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ExprSyntaxError(f"unexpected '{text[position:].strip()[:10]}' (1:{position + 1})")
            self.tokens.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
            position = match.end()

        self.operators = 0

    def count(self) -> None:
        """Count one operation: each makes the syntax tree deeper, and whoever walks over it needs a frame of the stack for it."""
        self.operators += 1
        if self.operators > _MOST:
            raise ExprSyntaxError(f"it has more than {_MOST} operations")

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.position] if self.position < len(self.tokens) else ("end", "EOF")

    def take(self, symbol: str) -> bool:
        if self.peek() == ("symbol", symbol):
            self.position += 1
            return True
        return False

    def need(self, symbol: str) -> None:
        if not self.take(symbol):
            raise ExprSyntaxError(f"unexpected token {self.peek()[1]} where '{symbol}' is expected")

    def choice(self) -> expr_nodes.ExprNode:
        with self.deeper():
            test = self.operation(0)
            if not self.take("?"):
                return test
            yes = self.choice()
            self.need(":")
            return expr_nodes.Conditional(test, yes, self.choice())

    def operation(self, at_least: int) -> expr_nodes.ExprNode:
        left = self.unary()
        while True:
            kind, symbol = self.peek()
            strength = _BINARY.get(symbol) if kind in ("symbol", "name") else None
            if strength is None or strength < at_least:
                return left
            self.position += 1
            self.count()
            with self.deeper():
                # `**` is right-associative
                right = self.operation(strength if symbol == "**" else strength + 1)
            if symbol == "??" and self.peek()[1] in _BINARY and self.peek()[1] != "??":
                raise ExprSyntaxError("'??' beside another operator needs parentheses around it")
            left = expr_nodes.Binary(_WORDS.get(symbol, symbol), left, right)

    def unary(self) -> expr_nodes.ExprNode:
        kind, symbol = self.peek()
        if kind in ("symbol", "name") and symbol in _UNARY:
            self.position += 1
            with self.deeper():
                return expr_nodes.Unary(_WORDS.get(symbol, symbol), self.operation(_UNARY[symbol]))
        return self.postfix(self.primary())

    def primary(self) -> expr_nodes.ExprNode:
        kind, text = self.peek()
        self.position += 1
        if kind == "number":
            return expr_nodes.Literal(_number(text))
        if kind == "string":
            return expr_nodes.Literal(_string(text))
        if kind == "name":
            return self.named(text)
        if text == "(":
            inner = self.choice()
            self.need(")")
            return inner
        if text == "[":
            return expr_nodes.Array(tuple(self.listed("]")))
        raise ExprSyntaxError(f"unexpected token {text}")

    def named(self, text: str) -> expr_nodes.ExprNode:
        if text in ("true", "false"):
            return expr_nodes.Literal(text == "true")
        if text == "nil":
            return expr_nodes.Literal(None)
        return expr_nodes.Identifier(text)

    def listed(self, end: str) -> Iterator[expr_nodes.ExprNode]:
        if self.take(end):
            return
        yield self.argument()
        while self.take(","):
            yield self.argument()
        self.need(end)

    def argument(self) -> expr_nodes.ExprNode:
        if self.take("{"):
            body = self.choice()
            self.need("}")
            return expr_nodes.Closure(body)
        return self.choice()

    def postfix(self, base: expr_nodes.ExprNode) -> expr_nodes.ExprNode:
        while True:
            optional = self.peek() == ("symbol", "?.")
            if self.peek()[1] in (".", "?.", "[", "("):
                self.count()
            if self.take(".") or self.take("?."):
                kind, name = self.peek()
                if kind != "name":
                    raise ExprSyntaxError(f"unexpected token {name} after '.'")
                self.position += 1
                base = expr_nodes.MemberAccess(base, expr_nodes.Literal(name), optional)
            elif self.take("["):
                key = self.choice()
                self.need("]")
                base = expr_nodes.MemberAccess(base, key, False)
            elif self.take("("):
                base = self.call(base)
            else:
                return base

    def call(self, base: expr_nodes.ExprNode) -> expr_nodes.ExprNode:
        name = expr_nodes.dotted(base)
        if name is None or name not in FUNCTIONS:
            raise ExprSyntaxError(f"the function '{name or 'expression'}' is not supported by both engines")
        arguments = tuple(self.listed(")"))
        if len(arguments) != FUNCTIONS[name]:
            raise ExprSyntaxError(f"'{name}' takes {FUNCTIONS[name]} argument(s), not {len(arguments)}")
        for index, argument in enumerate(arguments):
            if isinstance(argument, expr_nodes.Closure) != (name in CLOSURES and index == 1):
                problem = "is not called with a closure there" if isinstance(argument, expr_nodes.Closure) else "needs a closure"
                raise ExprSyntaxError(f"'{name}' {problem}")
        return expr_nodes.FunctionCall(name, arguments)


def read(text: str) -> expr_nodes.ExprNode:
    """Return the syntax tree of an expression. Raises ExprSyntaxError if the text is no whole expression of the subset."""
    reader = _ExprParser(text)
    node = reader.choice()
    if reader.peek()[0] != "end":
        raise ExprSyntaxError(f"unexpected token {reader.peek()[1]}")
    return node
