"""The grammar layer of the linter: what a manifest may use so that both engines do the same with it.

First every field against the closed lists, then (when each has its right form) names, calls and conditions, then references.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.render.grammar import fields
from workflows.render.grammar.fields import Leaf, Listing, Named, Noted, Only, Refused, Rule, Table
from workflows.render.grammar.findings import Finding
from workflows.render.grammar.library import Library
from workflows.render.grammar.references import check_references
from workflows.render.grammar.structure import check_structure
from workflows.render.grammar.tags import balanced, strings, tags

API_VERSION = "argoproj.io/v1alpha1"
KINDS = ("Workflow", "WorkflowTemplate")
_LONGEST = 1 << 20  # bytes of a manifest's texts: the largest object that Argo stores (hera_argo §2.2)


def lint(manifest: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Finding, ...]:
    """All findings about a Workflow or WorkflowTemplate; `templates` are the WorkflowTemplates that it may name, by name.

    Refusals first come from the form alone; only a manifest of right form is looked at further.
    """
    known = dict(templates or {})
    found = list(_document(manifest, ""))
    for name, document in known.items():
        found += _document(document, f"{name}:")
    if not any(finding.severity == "refused" for finding in found):
        library = Library(manifest, known)
        further = list(check_structure(library))
        found += further or list(check_references(library))
    return tuple(dict.fromkeys(found))


def _document(manifest: Any, start: str) -> Iterator[Finding]:
    if not isinstance(manifest, Mapping):
        yield Finding(start or "manifest", "is no object")
        return
    if manifest.get("apiVersion") != API_VERSION or manifest.get("kind") not in KINDS:
        yield Finding(f"{start}kind", f"is no Workflow or WorkflowTemplate of {API_VERSION}")
        return
    if sum(len(text) for _, text in strings(dict(manifest))) > _LONGEST:
        yield Finding(start or "manifest", f"is larger than {_LONGEST} bytes")
        return
    yield from _walk(manifest, fields.WORKFLOW, start)


def _walk(value: Any, rule: Rule, path: str) -> Iterator[Finding]:
    if isinstance(rule, Only):
        rule = fields.noted if value == rule.text else rule.other
    if isinstance(rule, Noted):
        yield Finding(path, rule.sentence, severity="noted")
    elif isinstance(rule, Refused):
        yield Finding(path, rule.sentence, rule.hint)
    elif isinstance(rule, Leaf):
        yield from _leaf(value, rule.kind, path)
    elif isinstance(rule, Listing):
        if not isinstance(value, (list, tuple)):
            yield Finding(path, "is no list")
            return
        for index, item in enumerate(value):
            yield from _walk(item, rule.item, f"{path}[{index}]")
    elif not isinstance(value, Mapping):
        yield Finding(path, "is no object")
    elif isinstance(rule, Named):
        for key, item in value.items():
            yield from _walk(item, rule.value, _join(path, str(key)))
    else:
        yield from _table(value, rule, path)


def _join(path: str, key: str) -> str:
    return f"{path}{key}" if not path or path.endswith(":") else f"{path}.{key}"


def _table(value: Mapping[str, Any], rule: Table, path: str) -> Iterator[Finding]:
    for key, item in value.items():
        below = _join(path, str(key))
        if key not in rule.fields:
            close = difflib.get_close_matches(str(key), rule.fields, 1)
            yield Finding(below, "is an unknown field", f"did you mean '{close[0]}'?" if close else "")
        elif item is not None or isinstance(rule.fields[key], Refused):
            yield from _walk(item, rule.fields[key], below)
    for key in rule.needs:
        if value.get(key) is None:
            yield Finding(_join(path, key), "is required")


def _leaf(value: Any, kind: str, path: str) -> Iterator[Finding]:
    wrong = _wrong_kind(value, kind)
    if wrong:
        yield Finding(path, wrong)
        return
    for below, text in strings(value, path):
        if kind == fields.PLAIN and tags(text):
            yield Finding(below, "takes no {{...}}: it is read before anything runs")
        elif not balanced(text):
            yield Finding(below, "has a {{ without its own }}, or one tag inside another", "write shell braces apart: '{''{'")


def _wrong_kind(value: Any, kind: str) -> str:
    """Why the API server would not take the value, "" when it would."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if kind in (fields.TEXT, fields.PLAIN):
        return "" if isinstance(value, str) else f"is no text: {value!r} (quote it)"
    if kind == fields.VALUE:
        return "is no text" if isinstance(value, (Mapping, list)) else ""
    if kind == fields.NUMBER:
        return "" if is_number else f"is no whole number from 0 on: {value!r}"
    if kind == fields.COUNT:
        return "" if is_number or (isinstance(value, str) and value.isdigit()) else f"is no whole number from 0 on: {value!r}"
    if kind == fields.FLAG:
        return "" if isinstance(value, bool) else "is neither true nor false"
    return "is null, which is no item" if value is None else ""
