"""Check a manifest against the schema of Argo's CRDs, as a Kubernetes API server does before the controller sees the object.

`argo_schema.json` is reduced from the full CRDs of Argo Workflows 4.1.2; `tests/conformance/argo_schema.py` writes it. The rules in
CEL (`x-kubernetes-validations`) are written as functions here, and a test compares their texts with the CRDs'.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from workflows.render.grammar.findings import LintFinding

_FILE = Path(__file__).with_name("argo_schema.json")
_LIMITS = {"int32": 1 << 31, "int64": 1 << 63}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "int-or-string": (int, str),
}
_WORDS = {dict: "an object", list: "a list", tuple: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
_EXPECTED = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "int-or-string": "a whole number or a text",
}
_KINDS = ("container", "script", "dag", "steps", "resource", "suspend", "containerSet", "data", "http", "plugin")
_LOCATIONS = ("s3", "git", "http", "artifactory", "hdfs", "raw", "oss", "gcs", "azure", "plugin")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

Value = Mapping[str, Any]


def _count(value: Value, names: tuple[str, ...]) -> int:
    return sum(value.get(name) is not None for name in names)


def _templates(broken: Callable[[Value], bool]) -> Callable[[Any], bool]:
    return lambda templates: any(isinstance(template, Mapping) and broken(template) for template in templates)


def _summed(names: tuple[str, ...], word: str = "self") -> str:
    """Return the CEL text of the sum over these fields."""
    return " + ".join(f"(has({word}.{name}) ? 1 : 0)" for name in names)


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    f"{_summed(_LOCATIONS)} <= 1": (
        lambda value: _count(value, _LOCATIONS) > 1,
        "has more than one artifact location",
    ),
    "!has(self.realtime) || !self.realtime || !self.value.contains('resourcesDuration.')": (
        lambda value: bool(value.get("realtime")) and "resourcesDuration." in str(value.get("value")),
        "'resourcesDuration.*' cannot be used in a real-time gauge",
    ),
    "!has(self.depends) || !has(self.dependencies)": (
        lambda value: _count(value, ("depends", "dependencies")) > 1,
        "cannot use both 'depends' and 'dependencies'",
    ),
    "!has(self.depends) || !has(self.continueOn)": (
        lambda value: _count(value, ("depends", "continueOn")) > 1,
        "cannot use 'continueOn' when using 'depends'",
    ),
    "!(has(self.depends) || has(self.dependencies)) || !self.name.matches('^[0-9]')": (
        lambda value: _count(value, ("depends", "dependencies")) > 0 and str(value.get("name", ""))[:1].isdigit(),
        "a task's name cannot begin with a digit when using 'depends' or 'dependencies'",
    ),
    "!(has(self.count) && has(self.end))": (
        lambda value: _count(value, ("count", "end")) > 1,
        "only one of count and end can be defined",
    ),
    "(has(self.manifest) && !has(self.manifestFrom)) || (!has(self.manifest) && has(self.manifestFrom))"
    " || (!has(self.manifest) && !has(self.manifestFrom))": (
        lambda value: _count(value, ("manifest", "manifestFrom")) > 1,
        "only one of manifest and manifestFrom can be specified",
    ),
    f"self.all(t, {_summed(_KINDS, 't')} <= 1)": (
        _templates(lambda template: _count(template, _KINDS) > 1),
        "a template must have at most one template type",
    ),
    'self.all(t, !(has(t.timeout) && t.timeout != "" && (has(t.steps) || has(t.dag))))': (
        _templates(lambda template: bool(template.get("timeout")) and _count(template, ("steps", "dag")) > 0),
        "timeout cannot be applied to steps or dag templates",
    ),
    "self.all(t, !(has(t.activeDeadlineSeconds) && (has(t.steps) || has(t.dag))))": (
        _templates(lambda template: template.get("activeDeadlineSeconds") is not None and _count(template, ("steps", "dag")) > 0),
        "activeDeadlineSeconds is only valid for leaf templates",
    ),
}
"""CEL rule of the CRDs → function that returns True if a value breaks it, and the sentence to report."""


@functools.cache
def _schemas() -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the number of each kind's schema, and all schemas by number."""
    content = json.loads(_FILE.read_text())
    return content["kinds"], content["schemas"]


def check_schema(manifest: Value, start: str = "") -> Iterator[LintFinding]:
    """Yield a finding for each value that an API server with Argo's CRDs would reject; nothing for kinds that are not Argo's."""
    kinds, schemas = _schemas()
    number = kinds.get(str(manifest.get("kind")))
    if number is None:
        return
    yield from _metadata(manifest.get("metadata"), f"{start}metadata")
    for name, part in schemas[number]["fields"].items():
        if name != "metadata" and manifest.get(name) is not None:
            yield from _value(manifest[name], part, f"{start}{name}")


def _value(value: Any, number: int, path: str) -> Iterator[LintFinding]:
    schema = _schemas()[1][number]
    problem = _type_problem(value, schema)
    if problem:
        yield LintFinding(path, problem)
        return
    if isinstance(value, dict):
        yield from _object(value, schema, path)
    elif isinstance(value, (list, tuple)):
        yield from _size(len(value), schema, path, "Items", "items")
        for index, item in enumerate(value):
            if "items" in schema:
                yield from _value(item, schema["items"], f"{path}[{index}]")
    else:
        yield from _scalar(value, schema, path)
    for rule in schema.get("rules", ()):
        is_broken, sentence = RULES[rule]
        if is_broken(value):
            yield LintFinding(path, sentence)


def _type_problem(value: Any, schema: dict[str, Any]) -> str:
    expected = schema.get("type")
    if expected is None:
        return ""
    fits = isinstance(value, _TYPES[expected]) and (expected == "boolean" or not isinstance(value, bool))
    if fits or (expected == "integer" and isinstance(value, float) and value.is_integer()):
        return ""
    quote = f"; YAML reads a bare word or number so: quote it as {json.dumps(_plain(value))}" if expected == "string" else ""
    return f"must be {_EXPECTED[expected]}, but is {_WORDS.get(type(value), 'null')} ({_plain(value)}){quote}"


def _plain(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _object(value: dict[Any, Any], schema: dict[str, Any], path: str) -> Iterator[LintFinding]:
    fields, rest = schema.get("fields", {}), schema.get("rest")
    for key, item in value.items():
        part = fields.get(key, rest)
        # an API server drops null where it is not declared, so such a field counts as absent
        if part is not None and item is not None:
            yield from _value(item, part, f"{path}.{key}")
        elif part is None and not schema.get("open"):
            yield LintFinding(f"{path}.{key}", "is an unknown field")
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield LintFinding(f"{path}.{key}", "is required")


def _scalar(value: Any, schema: dict[str, Any], path: str) -> Iterator[LintFinding]:
    if "enum" in schema and value not in schema["enum"]:
        yield LintFinding(path, f"{_plain(value)} is not among {', '.join(json.dumps(choice) for choice in schema['enum'])}")
    if isinstance(value, str):
        yield from _size(len(value), schema, path, "Length", "characters")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            yield LintFinding(path, f"{_plain(value)} does not match {schema['pattern']}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        limit = _LIMITS.get(schema.get("format", ""))
        if value < schema.get("minimum", value) or value > schema.get("maximum", value) or (limit and not -limit <= value < limit):
            yield LintFinding(path, f"{value} is outside of what Argo accepts here{_bounds(schema)}")


def _bounds(schema: dict[str, Any]) -> str:
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in schema]
    return f": {', '.join(bounds)}" if bounds else f": {schema.get('format', 'a number')}"


def _size(size: int, schema: dict[str, Any], path: str, suffix: str, noun: str) -> Iterator[LintFinding]:
    least, most = schema.get(f"min{suffix}", 0), schema.get(f"max{suffix}", size)
    if not least <= size <= most:
        yield LintFinding(path, f"has {size} {noun}; " + (f"at least {least}" if size < least else f"at most {most}"))


def _metadata(meta: Any, path: str) -> Iterator[LintFinding]:
    """Yield findings about names, labels and annotations, which an API server checks for every kind."""
    if not isinstance(meta, Mapping):
        return
    name = meta.get("name")
    if isinstance(name, str) and not (_NAME.fullmatch(name) and len(name) <= 253):
        yield LintFinding(f"{path}.name", f"{_plain(name)} is not a name: lower-case letters, digits, '-' and '.' inside")
    prefix = meta.get("generateName")
    if isinstance(prefix, str) and prefix and not _NAME.fullmatch(f"{prefix}x"):
        yield LintFinding(
            f"{path}.generateName", f"{_plain(prefix)} does not begin a name: lower-case letters, digits, '-' and '.'"
        )
    for section in ("labels", "annotations"):
        entries = meta.get(section)
        for key, value in entries.items() if isinstance(entries, Mapping) else ():
            if not _KEY.fullmatch(str(key)):
                yield LintFinding(f"{path}.{section}.{key}", f"{_plain(key)} is not a key of {section}")
            if not isinstance(value, str):
                problem = _type_problem(value, {"type": "string"})
                yield LintFinding(f"{path}.{section}.{key}", problem)
            elif section == "labels" and not _LABEL.fullmatch(value):
                yield LintFinding(
                    f"{path}.labels.{key}", f"{_plain(value)} is not a label's value: 63 of letters, digits, '-_.' at most"
                )
