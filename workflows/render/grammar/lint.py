"""Linter for the subset of Argo Workflows that both engines run in the same way.

It first checks every field against the rules in `field_rules` and the schema of Argo's CRDs, then names, calls and conditions, then
references.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workflows.render.grammar import field_rules
from workflows.render.grammar.controller_check import check_controller_rules
from workflows.render.grammar.findings import LintFinding, refused
from workflows.render.grammar.library import TemplateLibrary
from workflows.render.grammar.reference_check import check_references
from workflows.render.grammar.schema_check import check_schema
from workflows.render.grammar.structure_check import check_structure
from workflows.render.grammar.tags import balanced, keys, strings, tags

API_VERSION = "argoproj.io/v1alpha1"
KINDS = ("Workflow", "WorkflowTemplate")
_MOST = 200
"""Largest number of refusals that each part of the check lists; more help nobody, and take long."""
_LONGEST_KEY = 253  # characters of the longest key that Kubernetes accepts anywhere, without its prefix
_LONGEST = 1 << 20  # bytes of a manifest's texts; Argo stores no larger Workflow (default of MAX_WORKFLOW_SIZE)


def lint(manifest: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[LintFinding, ...]:
    """Return all findings about a Workflow or WorkflowTemplate; `templates` are the WorkflowTemplates that it may name, by name.

    Names and calls are checked only if no field is refused. References and the controller's rules are checked only if names and
    calls are right, and the API server would accept the manifest.
    """
    templates_given = dict(templates or {})
    documents = {"": manifest, **{f"{name}:": document for name, document in templates_given.items()}}
    if oversized := [finding for start, document in documents.items() for finding in _oversized(document, start)]:
        return tuple(oversized)
    findings = _first(finding for start, document in documents.items() for finding in _document(document, start))
    rejected = _first(
        finding
        for start, document in documents.items()
        if isinstance(document, Mapping)
        for finding in check_schema(document, start)
    )
    if not refused(findings):
        library = TemplateLibrary(manifest, templates_given)
        findings += _first(check_structure(library))
        if not refused(findings) and not rejected:
            findings += _first(itertools.chain(check_controller_rules(library), check_references(library)))
    named = [finding.path for finding in refused(findings)]
    # a place that has a sentence already needs no second one from the schema
    findings += [finding for finding in rejected if not any(_overlap(finding.path, path) for path in named)]
    return tuple(dict.fromkeys(findings))


def _first(findings: Iterable[LintFinding]) -> list[LintFinding]:
    """Return all findings, or those up to the last of `_MOST` refusals and a sentence that the check ended there."""
    kept: list[LintFinding] = []
    refusals = 0
    for finding in findings:
        # a key of the manifest must not forge lines on a terminal
        kept.append(finding if finding.path.isprintable() else dataclasses.replace(finding, path=ascii(finding.path)[1:-1]))
        refusals += finding.severity == "refused"
        if refusals == _MOST:
            return [*kept, LintFinding("manifest", f"has more errors: the check ended after {_MOST}", "mend these first")]
    return kept


def _overlap(path: str, other: str) -> bool:
    """Return True if one of two paths is the other or lies below it."""
    short, long = sorted((path, other), key=len)
    return bool(short) and long.startswith(short) and (len(long) == len(short) or long[len(short)] in ".[")


def _oversized(manifest: Any, start: str) -> Iterator[LintFinding]:
    """Yield findings about a document that is too large to be checked; Argo would not store it either."""
    if any(len(key) > _LONGEST_KEY << 1 for key in keys(manifest)):
        yield LintFinding(start or "manifest", f"has a key of more than {_LONGEST_KEY << 1} characters, which Argo does not accept")
    elif sum(len(text) for _, text in strings(manifest)) > _LONGEST:
        yield LintFinding(start or "manifest", f"is larger than {_LONGEST} bytes")


def _document(manifest: Any, start: str) -> Iterator[LintFinding]:
    if not isinstance(manifest, Mapping):
        yield LintFinding(start or "manifest", "is not an object")
        return
    if manifest.get("apiVersion") != API_VERSION or manifest.get("kind") not in KINDS:
        yield LintFinding(f"{start}kind", f"is not a Workflow or WorkflowTemplate of {API_VERSION}")
        return
    yield from _walk(manifest, field_rules.WORKFLOW, start)


def _walk(value: Any, rule: field_rules.Rule, path: str) -> Iterator[LintFinding]:
    if isinstance(rule, field_rules.ExactTextRule):
        rule = field_rules.noted if value == rule.text else rule.other
    if isinstance(rule, field_rules.NotedRule):
        yield LintFinding(path, rule.sentence, severity="noted")
    elif isinstance(rule, field_rules.RefusedRule):
        yield LintFinding(path, rule.sentence, rule.hint)
    elif isinstance(rule, field_rules.ScalarRule):
        yield from _leaf(value, rule.kind, path)
    elif isinstance(rule, field_rules.ListRule):
        if not isinstance(value, (list, tuple)):
            yield LintFinding(path, "is not a list")
            return
        for index, item in enumerate(value):
            yield from _walk(item, rule.item, f"{path}[{index}]")
    elif not isinstance(value, Mapping):
        yield LintFinding(path, "is not an object")
    elif isinstance(rule, field_rules.MapRule):
        for key, item in value.items():
            yield from _walk(item, rule.value, _join(path, str(key)))
    else:
        yield from _table(value, rule, path)


def _join(path: str, key: str) -> str:
    return f"{path}{key}" if not path or path.endswith(":") else f"{path}.{key}"


def _table(value: Mapping[str, Any], rule: field_rules.ObjectRule, path: str) -> Iterator[LintFinding]:
    for key, item in value.items():
        below = _join(path, str(key))
        if key not in rule.fields:
            close = difflib.get_close_matches(str(key), rule.fields, 1)
            yield LintFinding(below, "is an unknown field", f"did you mean '{close[0]}'?" if close else "")
        elif item is not None or isinstance(rule.fields[key], field_rules.RefusedRule):
            yield from _walk(item, rule.fields[key], below)
    for key in rule.needs:
        if value.get(key) is None:
            yield LintFinding(_join(path, key), "is required")


def _leaf(value: Any, kind: str, path: str) -> Iterator[LintFinding]:
    wrong = _wrong_kind(value, kind)
    if wrong:
        yield LintFinding(path, wrong)
        return
    for below, text in strings(value, path):
        if kind == field_rules.PLAIN and tags(text):
            yield LintFinding(below, "may not contain {{...}}: it is read before anything runs")
        elif not balanced(text):
            yield LintFinding(below, "has a {{ without its own }}, or one tag inside another", "write shell braces apart: '{''{'")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _wrong_kind(value: Any, kind: str) -> str:
    """Return why the API server would reject the value for a scalar rule of this kind, or "" if it accepts the value."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    is_digits = isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value) is not None
    if kind in (field_rules.TEXT, field_rules.PLAIN):
        return "" if isinstance(value, str) else f"is not a text: {_shown(value)} (quote it)"
    if kind == field_rules.VALUE:
        return "is not a text" if isinstance(value, (Mapping, list)) else ""
    if kind == field_rules.NUMBER:
        return "" if is_number else f"is not a whole number of 0 or more: {_shown(value)}"
    if kind == field_rules.COUNT:
        return "" if is_number or is_digits else f"is not a whole number of 0 or more: {_shown(value)}"
    if kind == field_rules.FLAG:
        return "" if isinstance(value, bool) else "is neither true nor false"
    return "is null; an item must have a value" if value is None else ""
