"""Reference entries of spec fields, compatibility rules, faults and gates, for `bringup explain` and the spec reference page."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from workflows.rehearsal.faults import fault_registry
from workflows.softwarestack import stack_faults
from workflows.spec.compat import RULES
from workflows.spec.editor_schema import KINDS, json_schema
from workflows.stages import EVERY, FACTORY_STAGES, PIPELINES, UNSIMULATED

GATE_PARAMETERS = ["seen", "want"]
"""Parameter names of every gate: a public function of a stage's `gate.py` that has exactly these is a gate."""

SECRET_REFERENCE = "SecretRef"
"""Model of a secret reference. Its three forms are described once, at the head of the page, not at each field."""
_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


class UnknownEntry(ValueError):
    """Error for a word that is no field, rule, fault or gate; the message proposes the nearest ones."""

    hint = "see `bringup faults`, `bringup stages`, `bringup schema`"


@dataclass(frozen=True)
class FieldEntry:
    """One field of a spec. `path` is dotted, with `[]` after a list and `*` for the keys of a mapping; `rules` are rule ids."""

    path: str
    type: str
    default: str
    description: str
    example: str
    rules: tuple[str, ...] = ()


@functools.cache
def fields(kind: str = "Cluster") -> tuple[FieldEntry, ...]:
    """Return all fields of a kind of spec in the order of its model. Raises KeyError for an unknown kind."""
    schema = json_schema(kind)
    entries = [entry for entry in _field_entries(schema, "", schema.get("$defs", {}), ()) if entry.path]
    if kind != "Cluster":
        return tuple(entries)
    rules = rules_by_field(frozenset(entry.path for entry in entries))
    return tuple(replace(entry, rules=rules.get(entry.path, ())) for entry in entries)


def _field_entries(schema: Mapping[str, Any], path: str, models: Mapping[str, Any], seen: tuple[str, ...]) -> Iterator[FieldEntry]:
    """Yield the fields of a model's schema, each followed by its nested fields. A recursive model is entered once."""
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        field_path = f"{path}.{name}" if path else name
        type_text, nested, suffix = _type_of(field, models)
        examples = field.get("examples") or [""]
        yield FieldEntry(
            path=field_path,
            type=type_text,
            default="required" if name in required else _value_text(field.get("default")),
            description=" ".join(str(field.get("description", "")).split()),
            example=_value_text(examples[0]) if examples[0] != "" else "",
        )
        for model in nested:
            if model not in seen:
                yield from _field_entries(models[model], field_path + suffix, models, (*seen, model))


def _value_text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type_of(field: Mapping[str, Any], models: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str]:
    """Return a field's type in words, the names of models below it, and the end of its path: `[]` for lists, `.*` for mappings."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        model = models[name]
        if name == SECRET_REFERENCE:
            return "secret reference", (), ""
        if "properties" in model:
            return "section", (name,), ""
        return _type_of(model, models)
    if "anyOf" in field or "oneOf" in field:
        parts = [_type_of(part, models) for part in field.get("anyOf") or field["oneOf"] if part.get("type") != "null"]
        nested = tuple(dict.fromkeys(name for part in parts for name in part[1]))
        suffix = next((part[2] for part in parts if part[1]), "")
        return " or ".join(dict.fromkeys(part[0] for part in parts)), nested, suffix
    if "enum" in field:
        return " · ".join(f"`{_value_text(value)}`" for value in field["enum"]), (), ""
    if "const" in field:
        return f"`{_value_text(field['const'])}`", (), ""
    if field.get("type") == "array":
        inner, nested, suffix = _type_of(field.get("items", {}), models)
        return f"list of {inner}", nested, f"[]{suffix}"
    if field.get("type") == "object":
        values = field.get("additionalProperties") or next(iter(field.get("patternProperties", {}).values()), None)
        inner, nested, suffix = _type_of(values, models) if isinstance(values, dict) else ("anything", (), "")
        return f"mapping to {inner}", nested, f".*{suffix}"
    return _TYPES.get(str(field.get("type")), "anything"), (), ""


def rules_by_field(paths: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Return, for each field path, the ids of the compatibility rules that read the field or report at it.

    The ids are found in the source of the rules: attribute chains behind `spec` or a pool of GPU groups, path literals of their
    findings, and functions in `POOL_READERS`.
    """
    rule_ids: dict[str, list[str]] = {}
    for rule in RULES.values():
        tree = ast.parse(textwrap.dedent(inspect.getsource(rule.find)))
        for path in {_mentioned_field(node, paths) for node in ast.walk(tree)} - {""}:
            rule_ids.setdefault(path, []).append(rule.id)
    return {path: tuple(sorted(ids)) for path, ids in rule_ids.items()}


POOL_READERS = {"uses_dra": "sharing.mode", "sharing_modes": "sharing.mode", "mig_strategy": "sharing.strategy"}
"""Function about the pools of GPU groups → the field of a spec that it reads."""


def _mentioned_field(node: ast.AST, paths: frozenset[str]) -> str:
    """Return the field path that an expression of a rule names; empty if there is none."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in paths:
        return node.value
    if isinstance(node, ast.Name):
        return POOL_READERS.get(node.id, "")
    if not isinstance(node, ast.Attribute):
        return ""
    chain = ast.unparse(node).split(".")
    start = max((index for index, word in enumerate(chain) if word in ("spec", "pool", "tenants")), default=-1)
    names = chain[start + 1 :] if start >= 0 else []
    while names:
        if ".".join(names) in paths:
            return ".".join(names)
        names.pop()
    return ""


@functools.cache
def gates() -> dict[str, str]:
    """Return the docstring of every gate by its id `STAGE/NAME`, read from the source of the stages without importing them."""
    docstrings: dict[str, str] = {}
    for stage in EVERY:
        source = resources.files("steps.stages").joinpath(stage, "gate.py").read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and [arg.arg for arg in node.args.args] == GATE_PARAMETERS and node.name[0] != "_":
                docstrings[f"{stage}/{node.name}"] = " ".join((ast.get_docstring(node) or "").split())
    return docstrings


def words() -> tuple[str, ...]:
    """Return everything that `explain` knows: rule ids, stages, faults, gates, and the fields of all kinds of specs."""
    faults = (*(fault.name for fault in fault_registry.faults()), *(fault.name for fault in stack_faults.FAULTS))
    paths = dict.fromkeys(entry.path for kind in KINDS for entry in fields(kind))
    return (*RULES, *EVERY, *faults, *gates(), *paths)


def explain(word: str) -> list[str]:
    """Return the lines that `bringup explain WORD` prints. Raises UnknownEntry, which proposes similar words."""
    for lines in (_rule(word), _stage(word), _fault(word), _gate(word), _fields(word)):
        if lines:
            return lines
    similar = difflib.get_close_matches(word, words(), n=3, cutoff=0.7)
    raise UnknownEntry(f"nothing is known about {word!r}" + (f": did you mean {' or '.join(similar)}?" if similar else ""))


def _rule(word: str) -> list[str]:
    rule = RULES.get(word.upper())
    if rule is None:
        return []
    rechecks = [f"checked again in the running cluster by gate {', '.join(rule.later)}"] if rule.later else []
    return [f"rule {rule.id} ({rule.severity}): {rule.sentence}", f"source: {rule.source}", *rechecks]


def _stage(word: str) -> list[str]:
    """Return the lines about a stage; a field of a spec that has its name, such as `sharing`, follows."""
    if word not in EVERY:
        return []
    pipelines = [pipeline for pipeline, names in PIPELINES.items() if word in names]
    source = resources.files("workflows.stages").joinpath(f"{word}.py").read_text(encoding="utf-8")
    summary = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")[0]
    faults = [fault.name for fault in fault_registry.faults() if fault.stage == word]
    title = " ".join(summary.split()).removeprefix(f"Stage {word}: ")
    lines = [f"stage {word} of pipeline {' and '.join(pipelines)}: {title}"]
    lines += [f"gate {gate}: {text}" for gate, text in gates().items() if gate.startswith(f"{word}/")]
    lines += [f"a rehearsal can play the faults {', '.join(faults)}"] if faults else []
    built = [fault.name for fault in stack_faults.FAULTS if fault.stage == word]
    lines += [f"tests bring about the faults {', '.join(built)}"] if built else []
    lines += [f"no fault is simulated: {UNSIMULATED[pipelines[0]]}"] if pipelines[0] in UNSIMULATED else []
    more = _fields(word)
    return [
        *lines,
        f"code: workflows/stages/{word}.py, steps/stages/{word}/, cases: tests/gates/{word}/",
        *([""] if more else []),
        *more,
    ]


def _fault(word: str) -> list[str]:
    fault = next((candidate for candidate in fault_registry.faults() if candidate.name == word), None)
    if fault is None:
        return _stack_fault(word)
    lines = [f"fault {fault.name}: {fault.summary}", f"caught by gate {fault.gate}: {fault.caught_by}"]
    lines += [f"looks healthy all the same: {fault.false_green}"] if fault.false_green else []
    lines += [f"needs a spec with {fault.needs}"] if fault.needs else []
    lines += [f"source: {fault.source}"] if fault.source else []
    spec = "factory.yaml " if fault.stage in FACTORY_STAGES else ""
    return [*lines, f"try it: bringup rehearse {spec}--fault {fault.name}"]


def _stack_fault(word: str) -> list[str]:
    return [
        line
        for fault in stack_faults.FAULTS
        if fault.name == word
        for line in (
            f"fault {fault.name}: {fault.summary}",
            f"caught by gate {fault.gate}: {fault.caught_by}",
            f"no rehearsal plays it: tests/{fault.test.partition('::')[0]} brings it about",
        )
    ]


def _gate(word: str) -> list[str]:
    if word not in gates():
        return []
    stage = word.partition("/")[0]
    faults = [fault.name for fault in fault_registry.faults() if fault.gate == word]
    faults += [fault.name for fault in stack_faults.FAULTS if fault.gate == word]
    lines = [f"gate {word}: {gates()[word]}", f"code: steps/stages/{stage}/gate.py, cases: tests/gates/{stage}/"]
    return lines + ([f"catches the faults {', '.join(faults)}"] if faults else [])


def _fields(word: str) -> list[str]:
    """Return the entries of a field in every kind of spec that has it, each with one line for each field below it."""
    lines: list[str] = []
    for kind in KINDS:
        entries = {entry.path: entry for entry in fields(kind)}
        entry = entries.get(word) or next((other for path, other in entries.items() if path.replace("[]", "") == word), None)
        if entry is not None:
            lines += ["", *_field(kind, entry, entries)] if lines else _field(kind, entry, entries)
    return lines


def _field(kind: str, entry: FieldEntry, entries: Mapping[str, FieldEntry]) -> list[str]:
    lines = [f"field {entry.path} of kind {kind}: {entry.description}", f"type: {entry.type.replace('`', '')}"]
    lines += [f"default: {entry.default}"] if entry.default else []
    lines += [f"example: {entry.example}"] if entry.example else []
    lines += [f"read by the rules {', '.join(entry.rules)}"] if entry.rules else []
    nested = [child for path, child in entries.items() if path.startswith((f"{entry.path}.", f"{entry.path}[]"))]
    return lines + [f"  {child.path}: {child.description}" for child in nested]


def spec_page() -> str:
    """Return the spec reference as Markdown: for each kind of spec, all fields with type, default, example and rules."""
    lines = [
        "# Spec reference",
        "",
        "Generated from the models in `workflows/spec` and `workflows/nodeimage`: do not edit. `bringup explain FIELD` prints one",
        "entry, `bringup schema KIND` the JSON Schema for editors. `[]` means the items of a list, `*` the keys of a mapping.",
        "A secret reference is one of `{file: PATH}`, `{env: NAME}` and `{secret: {name: NAME, key: KEY, namespace: NAMESPACE}}`.",
    ]
    for kind in KINDS:
        lines += ["", f"## {kind}", "", "| field | type | default | description | example | rules |", "|---|---|---|---|---|---|"]
        lines += [_row(entry) for entry in fields(kind)]
    lines += ["", "## Rules", "", "| rule | severity | sentence | source |", "|---|---|---|---|"]
    lines += [f"| {rule.id} | {rule.severity} | {_cell(rule.sentence)} | {rule.source} |" for _, rule in sorted(RULES.items())]
    return "\n".join(lines) + "\n"


def _row(entry: FieldEntry) -> str:
    example = f"`{_cell(entry.example)}`" if entry.example else ""
    cells = (f"`{entry.path}`", _cell(entry.type), _cell(entry.default), _cell(entry.description), example, ", ".join(entry.rules))
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
