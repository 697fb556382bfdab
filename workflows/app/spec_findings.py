"""Findings about a spec as rows for scripts: errors that hinder reading it, and breaches of compatibility rules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workflows import catalog
from workflows.app.factories import factory_specs
from workflows.app.specs import sources
from workflows.app.stacks import stack_findings
from workflows.nodeimage import recipe_spec
from workflows.spec import Issue, SpecError, SpecErrors, announcement_rule, key_files
from workflows.spec.parsing.document import YamlDocument
from workflows.spec.parsing.loading import read
from workflows.spec.parsing.validation_errors import line_of


@dataclass(frozen=True)
class Checked:
    """The findings about a spec file. If the file could not be read, `issues` are empty and `unreadable` holds the errors."""

    path: Path
    issues: tuple[Issue, ...] = ()
    unreadable: SpecErrors | None = None

    @property
    def errors(self) -> int:
        """Return the number of findings that make the spec unusable."""
        return len(self.unreadable.errors) if self.unreadable else sum(issue.severity == "error" for issue in self.issues)

    def data(self) -> dict[str, Any]:
        """Return a mapping of spec, validity and findings, for scripts; every finding has the same keys."""
        rows = [_error(finding) for finding in self.unreadable.errors] if self.unreadable else []
        document = read(self.path)[1] if self.issues and self.path.is_file() else None
        rows += [_issue(finding, line_of(finding.path, document) if document else 0) for finding in self.issues]
        return {"spec": str(self.path), "valid": not self.errors, "issues": rows}


def check(source: str, image_issues: Callable[[Path], Iterable[Issue]]) -> Checked:
    """Return the findings about the spec that an argument names. Raises NoSpec if there is no such file.

    `image_issues` checks an image spec or a recipe (`images.recipes`). It is a callback, because only images need its slow import.
    """
    path = sources.find(source)
    try:
        if path.is_file() and sources.kind_of(path) in (sources.IMAGE_SPEC, recipe_spec.KIND):  # a pipe can be read only once
            return _checked_file(path, image_issues)
        if path.is_file() and sources.kind_of(path) == sources.FACTORY_SPEC:
            return _checked_file(path, factory_specs.issues)
        if sources.is_stack(source):
            return _checked_file(path, stack_findings.issues)
        spec = sources.read(source)[1]
        issues = (*catalog.check(spec, catalog.load()), *announcement_rule.cluster_issues(spec))
        return Checked(path, (*issues, *(key_files.missing_files(spec, path.parent) if path.is_file() else ())))
    except SpecErrors as errors:
        return Checked(path, unreadable=_with_rules(errors, path))


def _checked_file(path: Path, file_issues: Callable[[Path], Iterable[Issue]]) -> Checked:
    """Return the findings of a function about a file. Its errors may be those of another file, which name their own lines."""
    try:
        return Checked(path, tuple(file_issues(path)))
    except SpecErrors as errors:
        return Checked(path, unreadable=errors)


def _with_rules(errors: SpecErrors, path: Path) -> SpecErrors:
    """Return the errors of a spec, with those that compatibility rules find in its valid sections."""
    further = [issue.as_error() for issue in catalog.further_errors(errors, catalog.load())]
    document = _parsed(path)
    if document is None:
        return SpecErrors(errors.source, [*errors.errors, *further]) if further else errors
    # errors of planned releases and of rules name keys, but no lines yet
    located = [replace(error, line=error.line or line_of(error.path, document)) for error in (*errors.errors, *further)]
    return SpecErrors(path.name, located)


def _parsed(path: Path) -> YamlDocument | None:
    """Return a spec file as YAML; None if it is no file, such as a pipe, which can be read only once, or cannot be read."""
    try:
        return read(path)[1] if path.is_file() else None
    except SpecErrors:
        return None


def _error(error: SpecError) -> dict[str, Any]:
    row = {"rule": "", "severity": "error", "path": error.path, "line": error.line or None, "value": error.value}
    return {**row, "problem": error.problem, "fix": error.fix, "source": "", "later": []}


def _issue(issue: Issue, line: int) -> dict[str, Any]:
    row = {"rule": issue.rule, "severity": issue.severity, "path": issue.path, "line": line or None, "value": ""}
    return {**row, "problem": issue.problem, "fix": issue.fix, "source": issue.source, "later": list(issue.checked_later)}
