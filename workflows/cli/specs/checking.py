"""What is wrong with a spec, as rows for scripts: what hinders reading it, and what the compatibility rules find."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steps.contract.image.booting import UNBOOTED, why_not_booted
from workflows import catalog
from workflows.cli.specs import kinds, sources
from workflows.spec import Issue, SpecError, SpecErrors, unattended
from workflows.spec.errors import Severity
from workflows.spec.loading import read
from workflows.spec.problems import line_of
from workflows.spec.recipe import KIND as RECIPE


@dataclass(frozen=True)
class Checked:
    """A spec and its findings. `issues` are empty where it could not be read: `unreadable` then says why."""

    path: Path
    issues: tuple[Issue, ...] = ()
    unreadable: SpecErrors | None = None

    @property
    def errors(self) -> int:
        """How many findings refuse the spec."""
        return len(self.unreadable.errors) if self.unreadable else sum(issue.severity == "error" for issue in self.issues)

    def data(self) -> dict[str, Any]:
        """All of it for scripts; each finding has the same keys, whatever found it."""
        found = [_error(one) for one in self.unreadable.errors] if self.unreadable else []
        document = read(self.path)[1] if self.issues and self.path.is_file() else None
        found += [_issue(one, line_of(one.path, document) if document else 0) for one in self.issues]
        return {"spec": str(self.path), "valid": not self.errors, "issues": found}


def check(source: str) -> Checked:
    """Read a spec argument and check it. Raises NoSpec where there is no such file."""
    path = sources.find(source)
    try:
        if path.is_file() and (kind := kinds.kind_of(path)) in (kinds.IMAGE_SPEC, RECIPE):  # a pipe is not read twice
            return Checked(path, tuple(_image(path, is_recipe=kind == RECIPE)))
        spec = sources.read(source)[1]
        return Checked(path, (*catalog.check(spec, catalog.load()), *unattended.issues(spec)))
    except SpecErrors as errors:
        return Checked(path, unreadable=errors)


def _image(path: Path, *, is_recipe: bool) -> Iterator[Issue]:
    """What is wrong with the lock of an image spec or of a recipe, or that it cannot be booted. Raises
    SpecErrors for what is wrong with those themselves."""
    from workflows.cli.images import recipes as image_recipes
    from workflows.images.errors import BuildError
    from workflows.images.nodes import resolve

    asked = image_recipes.asked(str(path))
    found = asked.chain(by_name=is_recipe)
    if why := why_not_booted(found.top.spec.name, found.foundation.architecture):
        kind: Severity = "warning" if is_recipe else "error"
        yield Issue("booted", kind, "recipe", why, UNBOOTED, "images/recipes/README.md")
    try:
        if is_recipe:
            resolve.locked(asked, found)
        else:
            resolve.resolve(asked)
    except BuildError as error:
        severity: Severity = "warning" if is_recipe else "error"  # a recipe may be locked by who takes it up
        yield Issue("locked", severity, "lock", str(error), error.hint, "images/recipes/README.md")


def _error(one: SpecError) -> dict[str, Any]:
    row = {"rule": "", "severity": "error", "path": one.path, "line": one.line or None, "value": one.value}
    return {**row, "problem": one.problem, "fix": one.fix, "source": "", "later": []}


def _issue(one: Issue, line: int) -> dict[str, Any]:
    row = {"rule": one.rule, "severity": one.severity, "path": one.path, "line": line or None, "value": ""}
    return {**row, "problem": one.problem, "fix": one.fix, "source": one.source, "later": list(one.checked_later)}
