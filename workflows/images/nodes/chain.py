"""A recipe with all that it extends, read from its files with every error of all of them at once."""

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from workflows.images.nodes import shipped, variables
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


def read(reference: str, folder: Path, given: Mapping[str, str], *, by_name: bool = False) -> Chain:
    """Read a recipe and those below it; `given` are the spec's values for variables. Raises SpecErrors with everything.

    `by_name`: a variable without a value is read as its own name, for who only looks at the recipe.
    """
    files = _files(find(reference, folder))
    declared = _values(files)
    values = declared | {name: value for name, value in given.items() if name in declared}
    values |= {name: name for name, value in values.items() if value is None and by_name}
    filler, wrong = variables.Filler(values), _Wrong(files[-1][0].name)
    parts = [_part(path, document, filler, wrong) for path, document in files]
    for path, document in files:
        wrong.add(path, variables.unused(_declared(document), filler.used), document)
    wrong.add(None, _given(values, declared, given))
    known = [part for part in parts if part is not None]
    if len(known) == len(files):
        for path, document, errors in _between(tuple(known)):
            wrong.add(path, errors, document)
    wrong.end()
    return Chain(parts=tuple(known))


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


def _part(path: Path, document: Document, filler: variables.Filler, wrong: _Wrong) -> Part | None:
    assert isinstance(document.data, dict)  # a document of something else is refused where it is read
    filler.errors = []
    data = {key: value if key in _UNFILLED else filler.fill(value, key) for key, value in document.data.items()}
    wrong.add(path, filler.errors, document)
    try:
        spec = validated(RecipeSpec, path.name, replace(document, data=data))
    except SpecErrors as errors:
        wrong.add(path, list(errors.errors), document)
        return None
    return Part(path=path, spec=spec, lines=document)


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


def _between(parts: tuple[Part, ...]) -> Iterator[tuple[Path, Document, list[SpecError]]]:
    """What is wrong between the files, and within one where a model does not see it. An upper recipe may put a test or file of its
    own in place of a lower one's; within one file each stands once."""
    layers: Counter[str] = Counter()
    for part in parts:
        errors = _twice(
            "layers[{}].tests", [(index, one.name) for index, layer in enumerate(part.spec.layers) for one in layer.tests]
        )
        for index, layer in enumerate(part.spec.layers):
            layers[layer.name] += 1
            if layers[layer.name] > 1:
                errors.append(SpecError(f"layers[{index}].name", "two layers have this name", "give each its own", layer.name))
            errors += _twice("layers[{}].packages", [(index, name) for name in layer.packages])
            errors += _twice("layers[{}].files", [(index, file.path) for file in layer.files])
            errors += _twice("layers[{}].users", [(index, user.name) for user in layer.users])
        yield part.path, part.lines, errors


def _twice(place: str, names: Iterable[tuple[int, str]]) -> list[SpecError]:
    """An error for each name that stands a second time; each comes with the layer that it stands in."""
    counted: Counter[str] = Counter()
    errors = []
    for layer, name in names:
        counted[name] += 1
        if counted[name] == 2:
            errors.append(SpecError(place.format(layer), "it stands twice", "keep one of the two", name))
    return errors
