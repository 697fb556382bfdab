"""JSON patch (RFC 6902) over JSON pointers (RFC 6901)."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

_INDEX = re.compile(r"0|[1-9]\d*")


class PatchError(Exception):
    """The patch is malformed, or does not fit the document."""


def patch(document: Any, operations: Any) -> Any:
    """The document after all operations; the argument does not change.

    Raises:
        PatchError: an operation cannot be done, or a test fails.
    """
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise PatchError("a JSON patch is a list of operations")
    result = copy.deepcopy(document)
    for operation in operations:
        perform = _OPERATIONS.get(operation.get("op", ""))
        if perform is None:
            raise PatchError(f"unexpected operation: {operation.get('op')!r}")
        result = perform(result, operation)
    return result


def _pointer(operation: Mapping[str, Any], key: str) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise PatchError(f"operation has no usable {key!r}: {text!r}")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _value(operation: Mapping[str, Any]) -> Any:
    if "value" not in operation:
        raise PatchError(f"operation {operation['op']!r} has no value")
    return copy.deepcopy(operation["value"])


def _index(step: str, length: int) -> int:
    if not _INDEX.fullmatch(step) or int(step) >= length:
        raise PatchError(f"invalid array index: {step}")
    return int(step)


def _get(document: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(document, list):
            document = document[_index(step, len(document))]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            raise PatchError(f"missing path: /{'/'.join(steps)}")
    return document


def _insert(document: Any, steps: list[str], value: Any) -> Any:
    if not steps:
        return value
    holder, last = _get(document, steps[:-1]), steps[-1]
    if isinstance(holder, list):
        holder.insert(len(holder) if last == "-" else _index(last, len(holder) + 1), value)
    elif isinstance(holder, dict):
        holder[last] = value
    else:
        raise PatchError(f"cannot add below /{'/'.join(steps[:-1])}")
    return document


def _take(document: Any, steps: list[str]) -> Any:
    if not steps:
        raise PatchError("cannot remove the whole document")
    _get(document, steps)
    holder, last = _get(document, steps[:-1]), steps[-1]
    return holder.pop(int(last)) if isinstance(holder, list) else holder.pop(last)


def _add(document: Any, operation: Mapping[str, Any]) -> Any:
    return _insert(document, _pointer(operation, "path"), _value(operation))


def _remove(document: Any, operation: Mapping[str, Any]) -> Any:
    _take(document, _pointer(operation, "path"))
    return document


def _replace(document: Any, operation: Mapping[str, Any]) -> Any:
    steps, value = _pointer(operation, "path"), _value(operation)
    if not steps:
        return value
    _get(document, steps)
    holder, last = _get(document, steps[:-1]), steps[-1]
    if isinstance(holder, list):
        holder[int(last)] = value
    else:
        holder[last] = value
    return document


def _move(document: Any, operation: Mapping[str, Any]) -> Any:
    source, target = _pointer(operation, "from"), _pointer(operation, "path")
    if target[: len(source)] == source and target != source:
        raise PatchError("cannot move a value into itself")
    return _insert(document, target, _take(document, source))


def _copy(document: Any, operation: Mapping[str, Any]) -> Any:
    return _insert(document, _pointer(operation, "path"), copy.deepcopy(_get(document, _pointer(operation, "from"))))


def _same(one: Any, other: Any) -> bool:
    """JSON equality: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _test(document: Any, operation: Mapping[str, Any]) -> Any:
    steps = _pointer(operation, "path")
    if not _same(_get(document, steps), _value(operation)):
        raise PatchError(f"testing value /{'/'.join(steps)} failed")
    return document


_OPERATIONS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
