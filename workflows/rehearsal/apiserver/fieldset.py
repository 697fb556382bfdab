"""Sets of fields as `managedFields` records them (FieldsV1 of structured-merge-diff).

A path is a tuple of steps in FieldsV1 spelling: `f:NAME` for a field, `k:{"name":"x"}` for a list element by its keys, `v:VALUE`
for a member of a set. A field set is a frozenset of paths.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from workflows.rehearsal.apiserver.type_schema import ListType, Schema

FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]
EMPTY: FieldSet = frozenset()
_encoder = msgspec.json.Encoder(order="sorted")
_SERVER_META = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion")
_NOT_OWNED = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{key}") for key in _SERVER_META)})


def _compact(value: Any) -> str:
    return _encoder.encode(value).decode()


def element_step(element: Any, schema: Schema) -> str:
    """Return the step to an element of a list of type map or set; empty if the element lacks a key."""
    if schema.list_type is ListType.SET:
        return "v:" + _compact(element)
    key = schema.element_key(element)
    return "" if key is None else "k:" + _compact(dict(zip(schema.map_keys, key, strict=True)))


def associative(elements: list[Any], schema: Schema) -> bool:
    """Return True if the list is merged by element: its type says so and every element has its keys."""
    return schema.list_type is not ListType.ATOMIC and all(element_step(element, schema) for element in elements)


def _leaves(value: Any, schema: Schema, path: FieldPath) -> Iterator[FieldPath]:
    if isinstance(value, dict) and value and not schema.atomic_map:
        for key, child in value.items():
            yield from _leaves(child, schema.child(key), (*path, f"f:{key}"))
    elif isinstance(value, list) and value and associative(value, schema):
        for element in value:
            step = (*path, element_step(element, schema))
            yield step
            if schema.list_type is ListType.MAP:
                yield from _leaves(element, schema.items, step)
    else:
        yield path


def owned(obj: Mapping[str, Any], schema: Schema, *, without: frozenset[str] = frozenset()) -> FieldSet:
    """Return the fields of `obj` that its writer owns.

    Identity, fields that only the server sets, and the top-level fields in `without` are left out.
    """
    paths: set[FieldPath] = set()
    for key, value in obj.items():
        if key not in without:
            paths.update(_leaves(value, schema.child(key), (f"f:{key}",)))
    return frozenset(path for path in paths if path[:2] not in _NOT_OWNED and path[:1] not in (("f:apiVersion",), ("f:kind",)))


def values(obj: Mapping[str, Any], schema: Schema) -> dict[FieldPath, Any]:
    """Return the value at each owned path, for comparing two versions of an object."""
    return {path: get(obj, schema, path) for path in owned(obj, schema)}


def get(value: Any, schema: Schema, path: FieldPath) -> Any:
    """Return the value at a path, or None."""
    for step in path:
        if step.startswith("f:"):
            name = step[2:]
            value, schema = (value.get(name) if isinstance(value, dict) else None), schema.child(name)
        else:
            index = _place(value, schema, step)
            value, schema = (value[index] if index >= 0 else None), schema.items
        if value is None:
            return None
    return value


def _place(value: Any, schema: Schema, step: str) -> int:
    elements = value if isinstance(value, list) else []
    return next((index for index, element in enumerate(elements) if element_step(element, schema) == step), -1)


def is_key(path: FieldPath) -> bool:
    """Return True if the path names a field that identifies its list element."""
    holder = path[-2] if len(path) > 1 else ""
    return holder.startswith("k:") and path[-1][2:] in msgspec.json.decode(holder[2:])


def remove(value: Any, schema: Schema, path: FieldPath) -> None:
    """Remove the value at a path in place, together with parents that become empty."""
    step, rest = path[0], path[1:]
    if step.startswith("f:"):
        name = step[2:]
        if not isinstance(value, dict) or name not in value:
            return
        if rest:
            remove(value[name], schema.child(name), rest)
        if not rest or value[name] in ({}, []):
            del value[name]
        return
    index = _place(value, schema, step)
    if index < 0:
        return
    if rest:
        remove(value[index], schema.items, rest)
    else:
        del value[index]


def encode(fields: Iterable[FieldPath]) -> dict[str, Any]:
    """Return the FieldsV1 form of some paths: nested objects, in which `.` marks a node that is itself a member."""
    root: dict[str, Any] = {}
    for path in sorted(fields):
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}
    return {step: _without_lone_marks(child) for step, child in root.items()}


def _without_lone_marks(node: dict[str, Any]) -> dict[str, Any]:
    if node.keys() == {"."}:
        return {}
    return {step: child if step == "." else _without_lone_marks(child) for step, child in node.items()}


def decode(node: Mapping[str, Any], path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of a FieldsV1 object."""
    if not node and path:
        yield path
    for step, child in node.items():
        if step == ".":
            yield path
        else:
            yield from decode(child, (*path, step))


def dotted_path(path: FieldPath) -> str:
    """Return a path as conflict messages show it, for instance `.spec.containers[name="c"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step.startswith("k:"):
            keys = msgspec.json.decode(step[2:])
            text += "[" + ",".join(f"{key}={_compact(value)}" for key, value in keys.items()) + "]"
        else:
            text += f"[={step[2:]}]"
    return text
