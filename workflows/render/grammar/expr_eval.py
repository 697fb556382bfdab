"""Evaluate parsed expressions with a scope that maps dotted names such as `tasks.a.status` to texts.

A name maps to None if an optional output is absent.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from workflows.render.grammar import expr_nodes
from workflows.render.grammar.gotext import LARGEST_INTEGER, display, json_text, parse_json

_LONGEST_TEXT = 1 << 20
"""Most characters of a text that an expression makes; Argo stores no larger Workflow."""
Scope = Mapping[str, str | None]


class ExprError(ValueError):
    """Exception: an expression has no value because of a wrong type, an invalid number, or a function that fails."""


class MissingNameError(ExprError):
    """Exception: an expression names something that the scope does not have."""


def evaluate(node: expr_nodes.ExprNode, scope: Scope, element: Any = None) -> Any:
    """Return the value of an expression: str, bool, int, float, None, list or dict. Raises ExprError.

    `element` is the value of `#` inside a closure.
    """
    name = expr_nodes.dotted(node)
    if name is not None and name != "#" and not name.startswith("#."):
        if name not in scope:
            raise MissingNameError(f"{name} is missing")
        return scope[name]
    if isinstance(node, expr_nodes.Literal):
        return node.value
    if isinstance(node, expr_nodes.Identifier):
        return element
    if isinstance(node, expr_nodes.Conditional):
        test = evaluate(node.test, scope, element)
        if not isinstance(test, bool):
            raise ExprError(f"the condition of '? :' is {display(test)}, not a boolean")
        return evaluate(node.yes if test else node.no, scope, element)
    if isinstance(node, expr_nodes.Array):
        return [evaluate(item, scope, element) for item in node.items]
    if isinstance(node, expr_nodes.Unary):
        return _unary(node.symbol, evaluate(node.inner, scope, element))
    if isinstance(node, expr_nodes.Binary):
        return _binary(node, scope, element)
    if isinstance(node, expr_nodes.MemberAccess):
        return _member(node, scope, element)
    if isinstance(node, expr_nodes.FunctionCall):
        return _call(node, scope, element)
    raise ExprError("a closure has no value of its own")


def _unary(symbol: str, value: Any) -> Any:
    if symbol == "!":
        if not isinstance(value, bool):
            raise ExprError(f"invalid operation: ! (mismatched type {_kind(value)})")
        return not value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ExprError(f"invalid operation: {symbol} (mismatched type {_kind(value)})")
    return _within_int64(-value) if symbol == "-" else value


def _kind(value: Any) -> str:
    if value is None:
        return "nil"
    names = {bool: "bool", str: "string", int: "int", float: "float64", list: "array", dict: "map"}
    return names.get(type(value), type(value).__name__)


def _binary(node: expr_nodes.Binary, scope: Scope, element: Any) -> Any:
    symbol = node.symbol
    if symbol == "??":
        # `??` is the only operator whose left side may name something that does not exist
        try:
            left = evaluate(node.left, scope, element)
        except MissingNameError:
            left = None
        return evaluate(node.right, scope, element) if left is None else left
    left = evaluate(node.left, scope, element)
    if symbol in ("&&", "||"):
        if isinstance(left, bool) and left is (symbol == "||"):
            return left
        right = evaluate(node.right, scope, element)
        if not (isinstance(left, bool) and isinstance(right, bool)):
            raise ExprError(f"invalid operation: {symbol} (mismatched types {_kind(left)} and {_kind(right)})")
        return right
    right = evaluate(node.right, scope, element)
    if symbol in ("==", "!="):
        # expr-lang reports mismatched types only if it knows both before it runs
        loose = expr_nodes.is_dynamic(node.left) or expr_nodes.is_dynamic(node.right)
        return _equal(left, right, loose) is (symbol == "==")
    if symbol == "in":
        return _within(left, right)
    return _apply(symbol, left, right)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _equal(left: Any, right: Any, loose: bool) -> bool:
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    if left is not None and right is not None and type(left) is not type(right) and not loose:
        raise ExprError(f"invalid operation: == (mismatched types {_kind(left)} and {_kind(right)})")
    return type(left) is type(right) and bool(left == right)


def _within(left: Any, right: Any) -> bool:
    if isinstance(right, list):
        return any(_equal(left, item, True) for item in right)
    if isinstance(right, dict) and isinstance(left, str):
        return left in right
    raise ExprError(f"invalid operation: in (mismatched types {_kind(left)} and {_kind(right)})")


_NUMERIC: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "**": math.pow}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_TEXT: dict[str, Callable[[str, str], Any]] = {
    "+": operator.add,
    "contains": operator.contains,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    **_ORDER,
}


def _apply(symbol: str, left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str) and symbol in _TEXT:
        if symbol == "+" and len(left) + len(right) > _LONGEST_TEXT:
            raise ExprError(f"the expression makes a text of more than {_LONGEST_TEXT} characters")
        return _TEXT[symbol](left, right)
    if _is_number(left) and _is_number(right):
        if symbol in _ORDER:
            return _ORDER[symbol](left, right)
        try:
            return _arithmetic(symbol, left, right)
        except (ZeroDivisionError, OverflowError, ValueError) as err:
            raise ExprError(f"invalid operation: {err}") from None
    raise ExprError(f"invalid operation: {symbol} (mismatched types {_kind(left)} and {_kind(right)})")


def _arithmetic(symbol: str, left: Any, right: Any) -> Any:
    if symbol == "/":
        return float(left) / float(right)
    if symbol == "%":
        if not (isinstance(left, int) and isinstance(right, int)):
            raise ExprError("invalid operation: % needs integers")
        return int(math.fmod(left, right))
    if symbol not in _NUMERIC:
        raise ExprError(f"invalid operation: {symbol} on numbers")
    return _within_int64(_NUMERIC[symbol](left, right))


def _within_int64(value: Any) -> Any:
    """Return a number. Raises ExprError if it is a whole one outside of 64 bits, where Go's result would be a wrong one."""
    if isinstance(value, int) and not -LARGEST_INTEGER - 1 <= value <= LARGEST_INTEGER:
        raise ExprError("the result does not fit into 64 bits")
    return value


def _member(node: expr_nodes.MemberAccess, scope: Scope, element: Any) -> Any:
    try:
        base = evaluate(node.base, scope, element)
    except MissingNameError:
        if node.optional:
            return None
        raise
    key = evaluate(node.key, scope, element)
    if base is None and node.optional:
        return None
    if isinstance(base, dict) and isinstance(key, str):
        return base.get(key)
    if isinstance(base, list) and isinstance(key, int) and not isinstance(key, bool) and -len(base) <= key < len(base):
        return base[key]
    raise ExprError(f"cannot fetch {display(key)} from {_kind(base)}")


def _call(node: expr_nodes.FunctionCall, scope: Scope, element: Any) -> Any:
    first = evaluate(node.arguments[0], scope, element)
    second = node.arguments[1] if len(node.arguments) > 1 else None
    if isinstance(second, expr_nodes.Closure):
        return _closure_call(node.function, first, second, scope)
    rest = [] if second is None else [evaluate(second, scope, element)]
    return _FUNCTIONS[node.function](first, *rest)


def _closure_call(function: str, values: Any, closure: expr_nodes.Closure, scope: Scope) -> Any:
    if not isinstance(values, list):
        raise ExprError(f"builtin {function} takes only array (got {_kind(values)})")
    results = [evaluate(closure.body, scope, item) for item in values]
    if function == "map":
        return results
    if not all(isinstance(result, bool) for result in results):
        raise ExprError(f"predicate of {function} should return boolean")
    if function == "filter":
        return [item for item, is_kept in zip(values, results, strict=True) if is_kept]
    return all(results) if function == "all" else any(results)


def _text(value: Any, function: str) -> str:
    if not isinstance(value, str):
        raise ExprError(f"{function} takes a string (got {_kind(value)})")
    return value


def _int(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[-+]?0*[0-9]{1,19}", value):
        return int(_within_int64(int(value)))
    if _is_number(value) and math.isfinite(value):
        return int(_within_int64(int(value)))
    raise ExprError(f"invalid operation: int({display(value)[:40]})")


def _float(value: Any) -> float:
    if isinstance(value, str) and re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", value, re.ASCII):
        return float(value)
    if _is_number(value):
        return float(value)
    raise ExprError(f"invalid operation: float({display(value)})")


def _length(value: Any) -> int:
    if isinstance(value, (str, list, dict)):
        return len(value)
    raise ExprError(f"invalid argument for len (type {_kind(value)})")


def _repeat(count: Any, text: Any) -> str:
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 10_000:
        raise ExprError("sprig.repeat takes a count from 0 to 10000")
    if count * len(_text(text, "sprig.repeat")) > _LONGEST_TEXT:
        raise ExprError(f"sprig.repeat makes a text of more than {_LONGEST_TEXT} characters")
    return str(text * count)


def from_json(text: Any) -> Any:
    """Return parsed JSON with every number as a float, as Argo's controller does. Raises ExprError."""
    try:
        return parse_json(_text(text, "fromJSON"), _finite)
    except ValueError as err:
        raise ExprError(f"not JSON: {err}") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:20]} is outside of the numbers that 64 bits hold")
    return value


def _json(value: Any) -> str:
    try:
        return json_text(value)
    except ValueError as err:
        raise ExprError(f"no JSON has this value: {err}") from None


_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\['([^']*)'\]")


def _jsonpath(text: Any, path: Any) -> Any:
    value = from_json(text)
    rest = _text(path, "jsonpath")
    if not rest.startswith("$"):
        raise ExprError(f"jsonpath '{rest}' does not start with $")
    position = 1
    while position < len(rest):
        step = _STEP.match(rest, position)
        if step is None:
            raise ExprError(f"jsonpath '{rest}' is not supported by both engines (supported: $.a.b, [0], ['k'])")
        key: Any = int(step[2]) if step[2] is not None else (step[1] if step[1] is not None else step[3])
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise ExprError(f"jsonpath '{rest}' finds nothing") from None
        position = step.end()
    return value


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "asInt": _int,
    "int": _int,
    "asFloat": _float,
    "float": _float,
    "string": display,
    "len": _length,
    "toJson": _json,
    "fromJSON": from_json,
    "jsonpath": _jsonpath,
    "trim": lambda text: _text(text, "trim").strip(),
    "upper": lambda text: _text(text, "upper").upper(),
    "lower": lambda text: _text(text, "lower").lower(),
    "sprig.trim": lambda text: _text(text, "trim").strip(),
    "sprig.upper": lambda text: _text(text, "upper").upper(),
    "sprig.lower": lambda text: _text(text, "lower").lower(),
    "sprig.repeat": _repeat,
}
