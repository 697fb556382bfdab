"""Reader of the executed subset of expr-lang (`{{= ... }}`, retry and hook expressions); the rest is an ExprSyntaxError."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workflows.render.grammar.expr_nodes import Array, Binary, Call, Choice, Closure, Literal, Member, Name, Node, Unary, dotted


class ExprSyntaxError(ValueError):
    """The text is no expression of the subset."""


FUNCTIONS = {  # name -> how many arguments
    "asInt": 1, "asFloat": 1, "int": 1, "float": 1, "string": 1, "len": 1, "toJson": 1, "fromJSON": 1, "jsonpath": 2,
    "map": 2, "filter": 2, "all": 2, "any": 2, "trim": 1, "upper": 1, "lower": 1,
    "sprig.trim": 1, "sprig.upper": 1, "sprig.lower": 1, "sprig.repeat": 2,
}  # fmt: skip
CLOSURES = frozenset({"map", "filter", "all", "any"})
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
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


def _string(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise ExprSyntaxError(f"the escape '\\{match[1]}' is outside of the executed subset")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", one, text[1:-1], flags=re.DOTALL)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[tuple[str, str]] = []
        self.at = 0
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ExprSyntaxError(f"unexpected '{text[at:].strip()[:10]}' (1:{at + 1})")
            self.found.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
            at = match.end()

    def peek(self) -> tuple[str, str]:
        return self.found[self.at] if self.at < len(self.found) else ("end", "EOF")

    def take(self, symbol: str) -> bool:
        if self.peek() == ("symbol", symbol):
            self.at += 1
            return True
        return False

    def need(self, symbol: str) -> None:
        if not self.take(symbol):
            raise ExprSyntaxError(f"unexpected token {self.peek()[1]} where '{symbol}' is expected")

    def choice(self) -> Node:
        test = self.operation(0)
        if not self.take("?"):
            return test
        yes = self.choice()
        self.need(":")
        return Choice(test, yes, self.choice())

    def operation(self, at_least: int) -> Node:
        left = self.unary()
        while True:
            kind, symbol = self.peek()
            strength = _BINARY.get(symbol) if kind in ("symbol", "name") else None
            if strength is None or strength < at_least:
                return left
            self.at += 1
            right = self.operation(strength if symbol == "**" else strength + 1)
            if symbol == "??" and self.peek()[1] in _BINARY and self.peek()[1] != "??":
                raise ExprSyntaxError("'??' beside another operator needs parentheses around it")
            left = Binary(_WORDS.get(symbol, symbol), left, right)

    def unary(self) -> Node:
        kind, symbol = self.peek()
        if kind in ("symbol", "name") and symbol in _UNARY:
            self.at += 1
            return Unary(_WORDS.get(symbol, symbol), self.operation(_UNARY[symbol]))
        return self.postfix(self.primary())

    def primary(self) -> Node:
        kind, text = self.peek()
        self.at += 1
        if kind == "number":
            return Literal(float(text) if "." in text else int(text))
        if kind == "string":
            return Literal(_string(text))
        if kind == "name":
            return self.named(text)
        if text == "(":
            inner = self.choice()
            self.need(")")
            return inner
        if text == "[":
            return Array(tuple(self.listed("]")))
        raise ExprSyntaxError(f"unexpected token {text}")

    def named(self, text: str) -> Node:
        if text in ("true", "false"):
            return Literal(text == "true")
        if text == "nil":
            return Literal(None)
        return Name(text)

    def listed(self, end: str) -> Iterator[Node]:
        if self.take(end):
            return
        yield self.argument()
        while self.take(","):
            yield self.argument()
        self.need(end)

    def argument(self) -> Node:
        if self.take("{"):
            body = self.choice()
            self.need("}")
            return Closure(body)
        return self.choice()

    def postfix(self, base: Node) -> Node:
        while True:
            optional = self.peek() == ("symbol", "?.")
            if self.take(".") or self.take("?."):
                kind, name = self.peek()
                if kind != "name":
                    raise ExprSyntaxError(f"unexpected token {name} after '.'")
                self.at += 1
                base = Member(base, Literal(name), optional)
            elif self.take("["):
                key = self.choice()
                self.need("]")
                base = Member(base, key, False)
            elif self.take("("):
                base = self.call(base)
            else:
                return base

    def call(self, base: Node) -> Node:
        name = dotted(base)
        if name is None or name not in FUNCTIONS:
            raise ExprSyntaxError(f"the function '{name or 'expression'}' is outside of the executed subset")
        arguments = tuple(self.listed(")"))
        if len(arguments) != FUNCTIONS[name]:
            raise ExprSyntaxError(f"'{name}' takes {FUNCTIONS[name]} argument(s), not {len(arguments)}")
        for index, argument in enumerate(arguments):
            if isinstance(argument, Closure) != (name in CLOSURES and index == 1):
                raise ExprSyntaxError(
                    f"'{name}' is not called with a closure there" if isinstance(argument, Closure) else f"'{name}' needs a closure"
                )
        return Call(name, arguments)


def read(text: str) -> Node:
    """Read a whole expression; ExprSyntaxError with a sentence when it is outside of the subset."""
    reader = _Reader(text)
    node = reader.choice()
    if reader.peek()[0] != "end":
        raise ExprSyntaxError(f"unexpected token {reader.peek()[1]}")
    return node
