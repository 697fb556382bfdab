"""Pruning, defaulting and validation of custom resources by their CRD's structural schema (apiextensions-apiserver).

CEL rules (`x-kubernetes-validations`) are not evaluated.
"""

import copy
import functools
import re
from typing import Any

from workflows.rehearsal.apiserver.builtin_decoder import ListType, Schema, json_type

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
    """Return a copy of `value` without fields that the schema does not declare, and append their paths to `unknown`."""
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
    """Set absent fields to the defaults in the schema, in place. A null counts as absent unless the field is nullable."""
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
    """Return the schema errors in a value, each as `PATH: Invalid value: …`; an empty list if it is valid."""
    if value is None and schema.nullable:
        return []
    mismatch = _type_problem(value, schema, path)
    if mismatch:
        return [mismatch]
    problems = _enum_problems(value, schema, path)
    if isinstance(value, dict):
        problems += _object_problems(value, schema, path)
    elif isinstance(value, list):
        problems += _list_problems(value, schema, path)
    elif isinstance(value, str):
        problems += _string_problems(value, schema, path)
    elif not isinstance(value, bool) and value is not None:
        problems += _number_problems(value, schema, path)
    return problems + _junctor_problems(value, schema, path)


def _type_problem(value: Any, schema: Schema, path: str) -> str:
    if schema.int_or_string:
        expected, fits = "integer,string", isinstance(value, int | str) and not isinstance(value, bool)
    elif not schema.type:
        return ""
    else:
        expected, fits = schema.type, isinstance(value, _PYTHON_TYPES[schema.type])
        fits = fits and not (isinstance(value, bool) and schema.type != "boolean")
    if fits:
        return ""
    actual = (
        "integer"
        if isinstance(value, int) and not isinstance(value, bool)
        else {"bool": "boolean"}.get(json_type(value), json_type(value))
    )
    return f'{path}: Invalid value: "{actual}": {path} in body must be of type {expected}: "{actual}"'


def _enum_problems(value: Any, schema: Schema, path: str) -> list[str]:
    allowed = schema.raw.get("enum")
    if allowed is None or value in allowed:
        return []
    listed = ", ".join(f'"{choice}"' for choice in allowed)
    return [f'{path}: Unsupported value: "{value}": supported values: {listed}']


def _object_problems(value: dict[str, Any], schema: Schema, path: str) -> list[str]:
    dot = f"{path}." if path else ""
    problems = [f"{dot}{key}: Required value" for key in schema.required if key not in value]
    problems += _size_problems(len(value), schema, path, "Properties", "properties")
    for key, child in value.items():
        field = schema.field(key) or schema.rest
        if field is not None:
            problems += validate(child, field, dot + key)
    return problems


def _list_problems(value: list[Any], schema: Schema, path: str) -> list[str]:
    problems = _size_problems(len(value), schema, path, "Items", "items")
    items = schema.items
    for index, element in enumerate(value):
        problems += validate(element, items, f"{path}[{index}]")
    if schema.list_type is not ListType.ATOMIC and not problems:
        problems += _duplicates(value, schema, path)
    return problems


def _duplicates(value: list[Any], schema: Schema, path: str) -> list[str]:
    seen: list[Any] = []
    problems = []
    for index, element in enumerate(value):
        key = schema.element_key(element) if schema.list_type is ListType.MAP else element
        if key is not None and key in seen:
            problems.append(f"{path}[{index}]: Duplicate value: {element!r}")
        seen.append(key)
    return problems


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
    raw, problems = schema.raw, []
    if len(value) < raw.get("minLength", 0):
        problems.append(f'{path}: Invalid value: "{value}": {path} in body should be at least {raw["minLength"]} chars long')
    if len(value) > raw.get("maxLength", len(value)):
        problems.append(f"{path}: Too long: may not be more than {raw['maxLength']} bytes")
    expression = _pattern(raw["pattern"]) if "pattern" in raw else None
    if expression and not expression.search(value):
        problems.append(f"{path}: Invalid value: \"{value}\": {path} in body should match '{raw['pattern']}'")
    return problems


def _number_problems(value: float, schema: Schema, path: str) -> list[str]:
    raw, problems = schema.raw, []
    least, most = raw.get("minimum"), raw.get("maximum")
    if least is not None and (value < least or (raw.get("exclusiveMinimum") and value == least)):
        problems.append(f"{path}: Invalid value: {value}: {path} in body should be greater than or equal to {least}")
    if most is not None and (value > most or (raw.get("exclusiveMaximum") and value == most)):
        problems.append(f"{path}: Invalid value: {value}: {path} in body should be less than or equal to {most}")
    step = raw.get("multipleOf")
    if step and value % step:
        problems.append(f"{path}: Invalid value: {value}: {path} in body should be a multiple of {step}")
    return problems


def _junctor_problems(value: Any, schema: Schema, path: str) -> list[str]:
    problems = []
    for branch in schema.branches("allOf"):
        problems += validate(value, branch, path)
    any_of, one_of, none_of = schema.branches("anyOf"), schema.branches("oneOf"), schema.branches("not")
    if any_of and all(validate(value, branch, path) for branch in any_of):
        problems.append(f'{path}: Invalid value: "": "{path}" must validate at least one schema (anyOf)')
    if one_of and sum(not validate(value, branch, path) for branch in one_of) != 1:
        problems.append(f'{path}: Invalid value: "": "{path}" must validate one and only one schema (oneOf)')
    if none_of and not validate(value, none_of[0], path):
        problems.append(f'{path}: Invalid value: "": "{path}" must not validate the schema (not)')
    return problems
