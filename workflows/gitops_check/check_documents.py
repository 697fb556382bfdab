"""Write a check as Markdown for a merge request, as JUnit XML for a CI server, and as data for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from workflows.gitops_check.delivery_check import CLASSES, DeliveryCheck
from workflows.gitops_check.gitops_findings import RULES, GitopsFinding


def data(result: DeliveryCheck) -> dict[str, Any]:
    """Return a check as plain data."""
    return {
        "errors": result.errors,
        "warnings": result.warnings,
        "classes": result.by_class,
        "looked_at": dict(result.counts),
        "findings": [
            {
                "rule": entry.rule,
                "severity": entry.severity,
                "class": entry.failure_class,
                "file": entry.path,
                "line": entry.line,
                "problem": entry.problem,
                "value": entry.value,
                "fix": entry.fix,
            }
            for entry in result.findings
        ],
        "not_checked": [{"file": part.path, "reason": part.reason} for part in result.unchecked],
        "restarts": None
        if result.restarts is None
        else [
            {"owner": entry.application, "pods": entry.pods, "why": entry.why, "jobs": entry.jobs, "ends_jobs": entry.ends_jobs}
            for entry in result.restarts
        ],
    }


def markdown(result: DeliveryCheck, summary: str) -> Iterator[str]:
    """Yield the lines of a page: the sum, findings by failure class, restarts, and what was not checked."""
    yield from ("# GitOps check", "", f"{summary}.")
    for name in CLASSES:
        entries = [entry for entry in result.findings if entry.failure_class == name]
        if entries:
            yield from ("", f"## {name}", "", "| severity | where | rule | problem | value | fix |", "|---|---|---|---|---|---|")
            yield from (_row(entry) for entry in entries)
    if result.restarts is not None:
        yield from ("", "## What a sync would restart", "")
        rows = ["| owner | pods | why | jobs |", "|---|---|---|---|"]
        rows += [f"| {_cell(r.application)} | {_cell(r.pods)} | {_cell(r.why)} | {_cell(r.jobs)} |" for r in result.restarts]
        yield from rows if result.restarts else ["Nothing that is known."]
    if result.unchecked:
        yield from ("", "## Not checked", "")
        yield from (f"- `{_code(part.path)}`: {_cell(part.reason)}" for part in result.unchecked)


def _row(entry: GitopsFinding) -> str:
    value = f"`{_code(entry.value)}`" if entry.value else ""
    cells = (entry.severity, f"`{_code(entry.place)}`", entry.rule, _cell(entry.problem), value, _cell(entry.fix))
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Return a text that neither ends a cell nor is read as markup: trees may be hostile to whoever reads the page."""
    escaped = "".join(f"\\{letter}" if letter in "\\`*_[]<>|#!" else letter for letter in text)
    return escaped.replace("\n", " ")


def _code(text: str) -> str:
    return text.replace("`", "'").replace("|", "\\|").replace("\n", " ")


def junit(result: DeliveryCheck, *, strict: bool) -> bytes:
    """Return the check as JUnit XML: a suite for each class, a case for each rule, a failure for each rule with findings.

    A warning is a failure only if `strict`; parts that were not checked are skipped cases, so that no server counts them as passes.
    """
    root = ElementTree.Element("testsuites", name="bringup gitops check")
    for name in CLASSES:
        cases = [_case(rule, result, strict) for rule, known in RULES.items() if known.failure_class == name]
        _suite(root, name, cases)
    if result.unchecked:
        _suite(root, "not-checked", [_skipped(part.path, part.reason) for part in result.unchecked])
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root)


def _suite(root: ElementTree.Element, name: str, cases: list[ElementTree.Element]) -> None:
    failures, skipped = (str(sum(case.find(tag) is not None for case in cases)) for tag in ("failure", "skipped"))
    suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)), failures=failures, skipped=skipped)
    suite.extend(cases)


def _case(rule: str, result: DeliveryCheck, strict: bool) -> ElementTree.Element:
    known = RULES[rule]
    case = ElementTree.Element("testcase", classname=known.failure_class.value, name=f"{rule}: {known.about}")
    entries = [entry for entry in result.findings if entry.rule == rule]
    lines = [f"{entry.place}: {entry.severity}: {entry.problem}; {entry.fix}" for entry in entries]
    if any(strict or entry.severity == "error" for entry in entries):
        failure = ElementTree.SubElement(case, "failure", message=_xml_safe(lines[0]), type=known.failure_class.value)
        failure.text = _xml_safe("\n".join(lines))
    elif lines:
        ElementTree.SubElement(case, "system-out").text = _xml_safe("\n".join(lines))
    return case


def _skipped(path: str, reason: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="not-checked", name=_xml_safe(path))
    ElementTree.SubElement(case, "skipped", message=_xml_safe(reason))
    return case


def _xml_safe(text: str) -> str:
    return "".join(letter if letter in "\t\n\r" or letter >= " " else "\N{REPLACEMENT CHARACTER}" for letter in text)
