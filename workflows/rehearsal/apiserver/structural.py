"""Custom resources against their CRD's structural schema: prune, fill in defaults, validate (apiextensions-apiserver).

CEL rules (`x-kubernetes-validations`) are not evaluated.
"""

import copy
import functools
import re
from typing import Any

from workflows.rehearsal.apiserver.schema import ListType, Schema
from workflows.rehearsal.apiserver.typed import json_type

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_OBJECT_FIELDS = ("apiVersion", "kind", "metadata")


def prune(value: Any, schema: Schema, path: str, unknown: list[str]) -> Any:
    """The value without fields that the schema does not declare; their paths are added to `unknown`."""
    if isinstance(value, list):
        return [prune(element, schema.items, f"{path}[{index}]", unknown) for index, element in enumerate(value)]
    if not isinstance(value, dict) or schema.int_or_string:
        return value
    kept: dict[str, Any] = {}
    dot = f"{path}." if path else ""
    for key, child in value.items():
        field = schema.field(key) or schema.rest
        if schema.embedded and key in _OBJECT_FIELDS:
            kept[key] = child
        elif field is not None:
            kept[key] = prune(child, field, dot + key, unknown)
        elif schema.preserve:
            kept[key] = child
        else:
            unknown.append(dot + key)
    return kept


def fill_defaults(value: Any, schema: Schema) -> None:
    """Sets absent fields that have a default, in place. A null that is not allowed counts as absent."""
    if isinstance(value, list):
        for element in value:
            fill_defaults(element, schema.items)
    if not isinstance(value, dict):
        return
    for key, raw in schema.properties.items():
        if "default" in raw and (key not in value or (value[key] is None and not raw.get("nullable"))):
            value[key] = copy.deepcopy(raw["default"])
    for key, child in value.items():
        field = schema.field(key) or schema.rest
        if field is not None:
            fill_defaults(child, field)


def validate(value: Any, schema: Schema, path: str) -> list[str]:
    """Everything that is wrong with the value, as `PATH: Invalid value: …`."""
    if value is None and schema.nullable:
        return []
    mismatch = _type_problem(value, schema, path)
    if mismatch:
        return [mismatch]
    found = _enum_problems(value, schema, path)
    if isinstance(value, dict):
        found += _object_problems(value, schema, path)
    elif isinstance(value, list):
        found += _list_problems(value, schema, path)
    elif isinstance(value, str):
        found += _string_problems(value, schema, path)
    elif not isinstance(value, bool) and value is not None:
        found += _number_problems(value, schema, path)
    return found + _junctor_problems(value, schema, path)


def _type_problem(value: Any, schema: Schema, path: str) -> str:
    if schema.int_or_string:
        wanted, good = "integer,string", isinstance(value, int | str) and not isinstance(value, bool)
    elif not schema.type:
        return ""
    else:
        wanted, good = schema.type, isinstance(value, _PYTHON_TYPES[schema.type])
        good = good and not (isinstance(value, bool) and schema.type != "boolean")
    if good:
        return ""
    given = (
        "integer"
        if isinstance(value, int) and not isinstance(value, bool)
        else {"bool": "boolean"}.get(json_type(value), json_type(value))
    )
    return f'{path}: Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'


def _enum_problems(value: Any, schema: Schema, path: str) -> list[str]:
    allowed = schema.raw.get("enum")
    if allowed is None or value in allowed:
        return []
    listed = ", ".join(f'"{choice}"' for choice in allowed)
    return [f'{path}: Unsupported value: "{value}": supported values: {listed}']


def _object_problems(value: dict[str, Any], schema: Schema, path: str) -> list[str]:
    dot = f"{path}." if path else ""
    found = [f"{dot}{key}: Required value" for key in schema.required if key not in value]
    found += _size_problems(len(value), schema, path, "Properties", "properties")
    for key, child in value.items():
        field = schema.field(key) or schema.rest
        if field is not None:
            found += validate(child, field, dot + key)
    return found


def _list_problems(value: list[Any], schema: Schema, path: str) -> list[str]:
    found = _size_problems(len(value), schema, path, "Items", "items")
    items = schema.items
    for index, element in enumerate(value):
        found += validate(element, items, f"{path}[{index}]")
    if schema.list_type is not ListType.ATOMIC and not found:
        found += _duplicates(value, schema, path)
    return found


def _duplicates(value: list[Any], schema: Schema, path: str) -> list[str]:
    seen: list[Any] = []
    found = []
    for index, element in enumerate(value):
        key = schema.element_key(element) if schema.list_type is ListType.MAP else element
        if key is not None and key in seen:
            found.append(f"{path}[{index}]: Duplicate value: {element!r}")
        seen.append(key)
    return found


def _size_problems(size: int, schema: Schema, path: str, suffix: str, noun: str) -> list[str]:
    least, most = schema.raw.get(f"min{suffix}"), schema.raw.get(f"max{suffix}")
    if least is not None and size < least:
        return [f"{path}: Invalid value: {size}: {path} in body should have at least {least} {noun}"]
    if most is not None and size > most:
        return [f"{path}: Too many: {size}: must have at most {most} {noun}"]
    return []


@functools.lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str] | None:
    try:
        return re.compile(text)
    except re.error:  # RE2 syntax that Python lacks: the rule is then not checked
        return None


def _string_problems(value: str, schema: Schema, path: str) -> list[str]:
    raw, found = schema.raw, []
    if len(value) < raw.get("minLength", 0):
        found.append(f'{path}: Invalid value: "{value}": {path} in body should be at least {raw["minLength"]} chars long')
    if len(value) > raw.get("maxLength", len(value)):
        found.append(f"{path}: Too long: may not be more than {raw['maxLength']} bytes")
    expression = _pattern(raw["pattern"]) if "pattern" in raw else None
    if expression and not expression.search(value):
        found.append(f"{path}: Invalid value: \"{value}\": {path} in body should match '{raw['pattern']}'")
    return found


def _number_problems(value: float, schema: Schema, path: str) -> list[str]:
    raw, found = schema.raw, []
    least, most = raw.get("minimum"), raw.get("maximum")
    if least is not None and (value < least or (raw.get("exclusiveMinimum") and value == least)):
        found.append(f"{path}: Invalid value: {value}: {path} in body should be greater than or equal to {least}")
    if most is not None and (value > most or (raw.get("exclusiveMaximum") and value == most)):
        found.append(f"{path}: Invalid value: {value}: {path} in body should be less than or equal to {most}")
    step = raw.get("multipleOf")
    if step and value % step:
        found.append(f"{path}: Invalid value: {value}: {path} in body should be a multiple of {step}")
    return found


def _junctor_problems(value: Any, schema: Schema, path: str) -> list[str]:
    found = []
    for branch in schema.branches("allOf"):
        found += validate(value, branch, path)
    any_of, one_of, none_of = schema.branches("anyOf"), schema.branches("oneOf"), schema.branches("not")
    if any_of and all(validate(value, branch, path) for branch in any_of):
        found.append(f'{path}: Invalid value: "": "{path}" must validate at least one schema (anyOf)')
    if one_of and sum(not validate(value, branch, path) for branch in one_of) != 1:
        found.append(f'{path}: Invalid value: "": "{path}" must validate one and only one schema (oneOf)')
    if none_of and not validate(value, none_of[0], path):
        found.append(f'{path}: Invalid value: "": "{path}" must not validate the schema (not)')
    return found
