"""Sets of fields as `managedFields` records them (FieldsV1 of structured-merge-diff).

A path is a tuple of steps in FieldsV1 spelling: `f:NAME` for a field, `k:{"name":"x"}` for a list element by its keys, `v:VALUE`
for a member of a set. A set is a frozenset of paths.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from workflows.rehearsal.apiserver.schema import ListType, Schema

Path = tuple[str, ...]
Fields = frozenset[Path]
EMPTY: Fields = frozenset()
_encoder = msgspec.json.Encoder(order="sorted")
_SERVER_META = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion")
_NOT_OWNED = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{key}") for key in _SERVER_META)})


def _compact(value: Any) -> str:
    return _encoder.encode(value).decode()


def element_step(element: Any, schema: Schema) -> str:
    """The step to an element of a list of type map or set; empty when the element has no key."""
    if schema.list_type is ListType.SET:
        return "v:" + _compact(element)
    key = schema.element_key(element)
    return "" if key is None else "k:" + _compact(dict(zip(schema.map_keys, key, strict=True)))


def associative(elements: list[Any], schema: Schema) -> bool:
    """Whether the list is merged by element: its type says so, and each element has its keys."""
    return schema.list_type is not ListType.ATOMIC and all(element_step(element, schema) for element in elements)


def _leaves(value: Any, schema: Schema, path: Path) -> Iterator[Path]:
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


def owned(obj: Mapping[str, Any], schema: Schema, *, without: frozenset[str] = frozenset()) -> Fields:
    """The fields of `obj` that its writer owns: not its identity, nor what only the server sets, nor what is in `without`."""
    found: set[Path] = set()
    for key, value in obj.items():
        if key not in without:
            found.update(_leaves(value, schema.child(key), (f"f:{key}",)))
    return frozenset(path for path in found if path[:2] not in _NOT_OWNED and path[:1] not in (("f:apiVersion",), ("f:kind",)))


def values(obj: Mapping[str, Any], schema: Schema) -> dict[Path, Any]:
    """The value at each owned path, for comparing two versions."""
    return {path: get(obj, schema, path) for path in owned(obj, schema)}


def get(value: Any, schema: Schema, path: Path) -> Any:
    """The value at a path; None when there is none."""
    for step in path:
        if step.startswith("f:"):
            name = step[2:]
            value, schema = (value.get(name) if isinstance(value, dict) else None), schema.child(name)
        else:
            place = _place(value, schema, step)
            value, schema = (value[place] if place >= 0 else None), schema.items
        if value is None:
            return None
    return value


def _place(value: Any, schema: Schema, step: str) -> int:
    elements = value if isinstance(value, list) else []
    return next((index for index, element in enumerate(elements) if element_step(element, schema) == step), -1)


def is_key(path: Path) -> bool:
    """Whether the path is that of a field by which its list element is identified."""
    holder = path[-2] if len(path) > 1 else ""
    return holder.startswith("k:") and path[-1][2:] in msgspec.json.decode(holder[2:])


def remove(value: Any, schema: Schema, path: Path) -> None:
    """Takes the value at a path out, in place, and its holders as far as they become empty."""
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
    place = _place(value, schema, step)
    if place < 0:
        return
    if rest:
        remove(value[place], schema.items, rest)
    else:
        del value[place]


def encode(fields: Iterable[Path]) -> dict[str, Any]:
    """The FieldsV1 form: a nested object; `.` marks a node that is a member beside its children."""
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


def decode(node: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    """The paths of a FieldsV1 object."""
    if not node and path:
        yield path
    for step, child in node.items():
        if step == ".":
            yield path
        else:
            yield from decode(child, (*path, step))


def dotted(path: Path) -> str:
    """`.spec.containers[name="c"].image`, as conflicts name a field."""
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
