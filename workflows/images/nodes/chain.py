"""A recipe with all that it extends, read from its files with every error of all of them at once."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from workflows.images.nodes import shipped, variables, written
from workflows.spec.document import Document
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.image import is_path
from workflows.spec.loading import read as read_document
from workflows.spec.loading import validated
from workflows.spec.problems import line_of
from workflows.spec.recipe import Foundation, RecipeSpec
from workflows.spec.recipe_layers import RecipeLayer

DEEPEST = 8
"""Recipes on top of each other."""
LOCK_SUFFIX = ".lock.json"
_UNFILLED = ("apiVersion", "kind", "name", "description", "extends", "variables")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file of a chain; `layers` are those of the file."""

    path: Path
    spec: RecipeSpec
    lines: Document

    @property
    def is_shipped(self) -> bool:
        """Whether bringup brings it."""
        return self.path.parent == shipped.RECIPES


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A recipe and those that it extends, lowest first."""

    parts: tuple[Part, ...]

    @property
    def top(self) -> Part:
        """The recipe that was asked for."""
        return self.parts[-1]

    @property
    def foundation(self) -> Foundation:
        """What the lowest one decides."""
        found = self.parts[0].spec.foundation
        assert found is not None  # a lowest recipe has one: the model sees to it
        return found

    @cached_property
    def layers(self) -> tuple[tuple[Part, RecipeLayer], ...]:
        """All layers, lowest first, each with the file that it stands in."""
        return tuple((part, layer) for part in self.parts for layer in part.spec.layers)

    @property
    def lock(self) -> Path:
        """Where its lock lies, unless the spec names another place."""
        return self.top.path.with_name(self.top.path.stem + LOCK_SUFFIX)


def find(reference: str, folder: Path) -> Path:
    """The file of a recipe: a path relative to `folder`, or the name of a shipped one. Raises SpecErrors."""
    if is_path(reference):
        return folder / reference
    found = shipped.path(reference)
    if found is None:
        near = difflib.get_close_matches(reference, shipped.names(), n=1)
        fix = f"did you mean {near[0]}?" if near else f"shipped are {', '.join(shipped.names())}; a path ends with .yaml"
        raise SpecErrors("recipe", [SpecError("recipe", "bringup ships no recipe of this name", fix, reference)])
    return found


def read(
    reference: str, folder: Path, given: Mapping[str, str], *, by_name: bool = False, secrets: Collection[str] | None = None
) -> Chain:
    """Read a recipe and those below it; `given` are the spec's values for variables. Raises SpecErrors with everything.

    `by_name`: a variable without a value is read as its own name, for who only looks at the recipe. `secrets`: the names of those
    that commands may ask for; None where no spec could name any.
    """
    files = _files(find(reference, folder))
    declared = _values(files)
    values = declared | {name: value for name, value in given.items() if name in declared}
    values |= {name: name for name, value in values.items() if value is None and by_name}
    filler, wrong = variables.Filler(values), _Wrong(files[-1][0].name)
    filled = [(path, _filled(path, document, filler, wrong)) for path, document in files]
    parts = [_part(path, document, wrong) for path, document in filled]
    for path, document in files:
        wrong.add(path, variables.unused(_declared(document), filler.used), document)
    wrong.add(None, _given(values, declared, given))
    seen, distribution = written.Seen(), _distribution(filled[0][1])
    for (path, document), (_, as_given) in zip(filled, files, strict=True):
        wrong.add(path, written.twice(_layers(document), seen), document)
        wrong.add(path, written.foreign_components(_layers(document), distribution), document)
        wrong.add(path, written.missing(_layers(as_given if by_name or filler.lacks else document), path.parent), document)
    if secrets is not None:
        wrong.add(None, written.unknown_secrets([_layers(document) for _, document in filled], secrets))
    wrong.end()
    return Chain(parts=tuple(part for part in parts if part is not None))


def lacking(reference: str, folder: Path, given: Collection[str]) -> tuple[str, ...]:
    """Names of the variables that have no value in the recipe, nor one from the spec."""
    return tuple(name for name, value in _values(_files(find(reference, folder))).items() if value is None and name not in given)


class _Wrong:
    """Errors of several files as those of the uppermost; the others' stand with their file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: list[SpecError] = []

    def add(self, path: Path | None, errors: list[SpecError], document: Document | None = None) -> None:
        for one in errors:
            line = one.line or (line_of(one.path, document) if document else 0)
            if path is None:
                self.errors.append(replace(one, path=f"spec: {one.path}"))
            elif path.name == self.name:
                self.errors.append(replace(one, line=line))
            else:
                where = f"{path.name}:{line}" if line else path.name
                self.errors.append(replace(one, path=f"{where}: {one.path}", line=0))

    def end(self) -> None:
        if self.errors:
            raise SpecErrors(self.name, self.errors)


def _files(path: Path) -> list[tuple[Path, Document]]:
    """The files of a chain, lowest first."""
    found: list[tuple[Path, Document]] = []
    while True:
        name, document = read_document(path)
        found.insert(0, (path, document))
        below = document.data.get("extends") if isinstance(document.data, dict) else None
        if not isinstance(below, str):
            return found
        path = find(below, path.parent)
        if path.resolve() in [one.resolve() for one, _ in found] or len(found) >= DEEPEST:
            error = SpecError("extends", "the recipes extend each other in a circle, or too deep", "end at a shipped one", below)
            raise SpecErrors(name, [error])


def _declared(document: Document) -> dict[str, str | None]:
    data = document.data if isinstance(document.data, dict) else {}
    found = data.get("variables")
    return {name: value for name, value in found.items() if isinstance(value, str | None)} if isinstance(found, dict) else {}


def _values(files: list[tuple[Path, Document]]) -> dict[str, str | None]:
    """Values of the recipes' own: an upper recipe's goes before a lower one's."""
    return {name: value for _, document in files for name, value in _declared(document).items()}


def _filled(path: Path, document: Document, filler: variables.Filler, wrong: _Wrong) -> Document:
    """A file with values in place of variables."""
    assert isinstance(document.data, dict)  # a document of something else is refused where it is read
    filler.errors = []
    data = {key: value if key in _UNFILLED else filler.fill(value, key) for key, value in document.data.items()}
    wrong.add(path, filler.errors, document)
    return replace(document, data=data)


def _part(path: Path, document: Document, wrong: _Wrong) -> Part | None:
    try:
        spec = validated(RecipeSpec, path.name, document)
    except SpecErrors as errors:
        wrong.add(path, list(errors.errors), document)
        return None
    return Part(path=path, spec=spec, lines=document)


def _layers(document: Document) -> object:
    return document.data.get("layers") if isinstance(document.data, dict) else None


def _distribution(lowest: Document) -> object:
    found = lowest.data.get("foundation") if isinstance(lowest.data, dict) else None
    return found.get("distribution") if isinstance(found, dict) else None


def _given(values: Mapping[str, str | None], declared: Mapping[str, str | None], given: Mapping[str, str]) -> list[SpecError]:
    """What is wrong with the values of the spec: names that no recipe has, and values that are missing."""
    known = ", ".join(declared) or "none"
    errors = [
        SpecError(f"variables.{name}", "the recipe has no variable of this name", f"it has {known}", name)
        for name in given
        if name not in declared
    ]
    return errors + [
        SpecError(f"variables.{name}", "the recipe needs a value from the spec", f"add variables: {{{name}: …}}")
        for name, value in values.items()
        if value is None
    ]
