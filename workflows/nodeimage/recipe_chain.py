"""Read a recipe with all recipes that it extends and fill in variables (`{{ name }}`); errors of all files come at once."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from workflows.nodeimage import recipe_checks, recipe_files
from workflows.nodeimage.image_spec import is_path
from workflows.nodeimage.recipe_spec import Foundation, RecipeLayer, RecipeSpec
from workflows.spec.errors import SpecError, SpecErrors, format_value
from workflows.spec.parsing.document import YamlDocument, join
from workflows.spec.parsing.loading import read as read_document
from workflows.spec.parsing.loading import validate_document
from workflows.spec.parsing.validation_errors import line_of

_VARIABLE = re.compile(r"\{\{(.*?)\}\}")
_NAME = re.compile(r"\s*([a-z][a-z0-9_]{0,62})\s*")


@dataclass
class Filler:
    """Fills variables into one document after another; collects the names that are used, and the errors."""

    values: Mapping[str, str | None]
    used: set[str] = field(default_factory=set)
    errors: list[SpecError] = field(default_factory=list)
    has_missing_values: bool = False

    def fill(self, data: object, path: str = "") -> object:
        """Return the data with values in place of `{{ name }}`; an unknown name is an error.

        A variable without a value becomes its own name, and sets `has_missing_values`.
        """
        if isinstance(data, dict):
            return {key: self.fill(value, join(path, key)) for key, value in data.items()}
        if isinstance(data, list):
            return [self.fill(value, join(path, index)) for index, value in enumerate(data)]
        return self._fill_text(data, path) if isinstance(data, str) else data

    def _fill_text(self, text: str, path: str) -> str:
        if "{{" not in text:
            return text
        filled = _VARIABLE.sub(lambda match: self._replacement(match, path), text)
        if "{{" in _VARIABLE.sub("", text):
            self._add_error(path, text, "{{ opens a variable that nothing closes")
        return filled

    def _replacement(self, match: re.Match[str], path: str) -> str:
        name_match = _NAME.fullmatch(match[1])
        if name_match is None:
            self._add_error(path, match[0], "not a variable: between {{ and }} stands one name and nothing else")
            return match[0]
        self.used.add(name_match[1])
        if name_match[1] not in self.values:
            known = ", ".join(self.values) or "none yet"
            self.errors.append(SpecError(path, "no variable of this name", f"name it under variables ({known})", name_match[1]))
        value = self.values.get(name_match[1])
        if value is None:
            self.has_missing_values = True
            return name_match[1]  # as good as any text, where nothing would be one error more
        return value

    def _add_error(self, path: str, value: str, problem: str) -> None:
        self.errors.append(
            SpecError(path, problem, "text with {{ of its own goes into a file of its own: source: PATH", format_value(value))
        )


def unused_variables(declared: Iterable[str], used: set[str]) -> list[SpecError]:
    """Return an error for each declared variable that nothing uses, because its name is probably misspelt somewhere."""
    return [
        SpecError(f"variables.{name}", "nothing asks for this variable", f"write {{{{ {name} }}}} somewhere, or remove it", name)
        for name in declared
        if name not in used
    ]


DEEPEST = 8
"""Largest number of recipes in a chain of which each extends the next."""
LOCK_SUFFIX = ".lock.json"
_LITERAL_KEYS = ("apiVersion", "kind", "name", "description", "extends", "variables")


@dataclass(frozen=True, kw_only=True)
class RecipePart:
    """One recipe file of a chain, with its model and its lines."""

    path: Path
    spec: RecipeSpec
    lines: YamlDocument

    @property
    def is_shipped(self) -> bool:
        """Return True if bringup ships this recipe."""
        return self.path.parent == recipe_files.RECIPES


@dataclass(frozen=True, kw_only=True)
class Chain:
    """A recipe and the recipes that it extends, the lowest first."""

    parts: tuple[RecipePart, ...]

    @property
    def top(self) -> RecipePart:
        """The recipe that was asked for; the others are those that it extends."""
        return self.parts[-1]

    @property
    def foundation(self) -> Foundation:
        """Settings that the lowest recipe decides for all: distribution, release, architecture, kernel, time of files."""
        foundation = self.parts[0].spec.foundation
        assert foundation is not None  # a lowest recipe has one: the model sees to it
        return foundation

    @cached_property
    def layers(self) -> tuple[tuple[RecipePart, RecipeLayer], ...]:
        """All layers, the lowest first, each with its recipe file."""
        return tuple((part, layer) for part in self.parts for layer in part.spec.layers)

    @property
    def lock(self) -> Path:
        """Path of the lock file beside the top recipe, unless the spec names another one."""
        return self.top.path.with_name(self.top.path.stem + LOCK_SUFFIX)


def find(reference: str, folder: Path) -> Path:
    """Return the file of a recipe: `reference` is a path relative to `folder`, or the name of a shipped recipe.

    Raises SpecErrors.
    """
    if is_path(reference):
        return folder / reference
    path = recipe_files.shipped_path(reference)
    if path is None:
        similar = difflib.get_close_matches(reference, recipe_files.shipped_names(), n=1)
        shipped = ", ".join(recipe_files.shipped_names())
        fix = f"did you mean {similar[0]}?" if similar else f"shipped are {shipped}; a path ends with .yaml"
        raise SpecErrors("recipe", [SpecError("recipe", "bringup ships no recipe of this name", fix, reference)])
    return path


def read(
    reference: str, folder: Path, spec_values: Mapping[str, str], *, by_name: bool = False, secrets: Collection[str] | None = None
) -> Chain:
    """Read a recipe and those that it extends; `spec_values` are the spec's variables. Raises SpecErrors with every error.

    With `by_name` a variable without value is read as its own name, to look at a recipe without a spec. `secrets` are the names
    that commands may ask for; None allows any.
    """
    files = _files(find(reference, folder))
    declared = _defaults(files)
    values = declared | {name: value for name, value in spec_values.items() if name in declared}
    values |= {name: name for name, value in values.items() if value is None and by_name}
    filler, errors = Filler(values), _ErrorCollector(files[-1][0].name)
    filled_files = [(path, _fill_document(path, document, filler, errors)) for path, document in files]
    parts = [_recipe_part(path, document, errors) for path, document in filled_files]
    for path, document in files:
        errors.add(path, unused_variables(_own_variables(document), filler.used), document)
    errors.add(None, _value_errors(values, declared, spec_values))
    seen_names, foundation = recipe_checks.SeenNames(), _value_at(filled_files[0][1], "foundation")
    distribution = foundation.get("distribution") if isinstance(foundation, dict) else None
    for (path, document), (_, unfilled) in zip(filled_files, files, strict=True):
        layers = _value_at(document, "layers")
        errors.add(path, recipe_checks.repeated_names(layers, seen_names), document)
        errors.add(path, recipe_checks.foreign_components(layers, distribution), document)
        source_layers = _value_at(unfilled, "layers") if by_name or filler.has_missing_values else layers
        errors.add(path, recipe_checks.missing_files(source_layers, path.parent), document)
    if secrets is not None:
        errors.add(None, recipe_checks.unknown_secrets([_value_at(document, "layers") for _, document in filled_files], secrets))
    errors.raise_if_any()
    return Chain(parts=tuple(part for part in parts if part is not None))


def missing_values(reference: str, folder: Path, values: Collection[str]) -> tuple[str, ...]:
    """Return the names of variables that have a value neither in the recipes nor in `values`, those of the spec."""
    return tuple(name for name, value in _defaults(_files(find(reference, folder))).items() if value is None and name not in values)


class _ErrorCollector:
    """Collects errors of several files; paths of errors outside the top recipe begin with their file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors: list[SpecError] = []

    def add(self, path: Path | None, errors: list[SpecError], document: YamlDocument | None = None) -> None:
        for error in errors:
            line = error.line or (line_of(error.path, document) if document else 0)
            if path is None:
                self.errors.append(replace(error, path=f"spec: {error.path}"))
            elif path.name == self.name:
                self.errors.append(replace(error, line=line))
            else:
                location = f"{path.name}:{line}" if line else path.name
                self.errors.append(replace(error, path=f"{location}: {error.path}", line=0))

    def raise_if_any(self) -> None:
        if self.errors:
            raise SpecErrors(self.name, self.errors)


def _files(path: Path) -> list[tuple[Path, YamlDocument]]:
    """Return path and document of each file of a chain, the lowest first.

    Raises SpecErrors if the chain is a circle or too long.
    """
    files: list[tuple[Path, YamlDocument]] = []
    while True:
        name, document = read_document(path)
        files.insert(0, (path, document))
        extended = _value_at(document, "extends")
        if not isinstance(extended, str):
            return files
        path = find(extended, path.parent)
        if path.resolve() in [other.resolve() for other, _ in files] or len(files) >= DEEPEST:
            error = SpecError("extends", "the recipes extend each other in a circle, or too deep", "end at a shipped one", extended)
            raise SpecErrors(name, [error])


def _own_variables(document: YamlDocument) -> dict[str, str | None]:
    values = _value_at(document, "variables")
    return {name: value for name, value in values.items() if isinstance(value, str | None)} if isinstance(values, dict) else {}


def _defaults(files: list[tuple[Path, YamlDocument]]) -> dict[str, str | None]:
    """Return the recipes' own values; those of an upper recipe win."""
    return {name: value for _, document in files for name, value in _own_variables(document).items()}


def _fill_document(path: Path, document: YamlDocument, filler: Filler, errors: _ErrorCollector) -> YamlDocument:
    assert isinstance(document.data, dict)  # a document of something else is refused where it is read
    filler.errors = []
    data = {key: value if key in _LITERAL_KEYS else filler.fill(value, key) for key, value in document.data.items()}
    errors.add(path, filler.errors, document)
    return replace(document, data=data)


def _recipe_part(path: Path, document: YamlDocument, errors: _ErrorCollector) -> RecipePart | None:
    try:
        spec = validate_document(RecipeSpec, path.name, document)
    except SpecErrors as error:
        errors.add(path, list(error.errors), document)
        return None
    return RecipePart(path=path, spec=spec, lines=document)


def _value_at(document: YamlDocument, key: str) -> object:
    return document.data.get(key) if isinstance(document.data, dict) else None


def _value_errors(values: Mapping[str, str | None], declared: Collection[str], spec_values: Collection[str]) -> list[SpecError]:
    """Return errors in the spec's values of variables: names that no recipe has, and values that are missing."""
    known = ", ".join(declared) or "none"
    errors = [
        SpecError(f"variables.{name}", "the recipe has no variable of this name", f"it has {known}", name)
        for name in spec_values
        if name not in declared
    ]
    return errors + [
        SpecError(f"variables.{name}", "the recipe needs a value from the spec", f"add variables: {{{name}: …}}")
        for name, value in values.items()
        if value is None
    ]
