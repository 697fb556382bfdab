"""Checks across the files and layers of a recipe, on the data as written, so that no other error of a recipe hides them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workflows.nodeimage import recipe_files
from workflows.nodeimage.package_resolution import DISTRIBUTIONS
from workflows.spec.errors import SpecError

_UNIQUE_LISTS = {"packages": None, "files": "path"}
"""Lists of a layer whose entries are unique, and the key with an entry's name (None: the entry itself is the name)."""


@dataclass
class SeenNames:
    """Names in the files that were checked so far, from the lowest: layers, users, and user names by uid."""

    layers: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    names_by_uid: dict[int, str] = field(default_factory=dict)


def repeated_names(layers: object, seen: SeenNames) -> list[SpecError]:
    """Return errors for names that occur twice in the layers of one file or in `seen`, and add the names to `seen`.

    An upper recipe may replace a test or file of a lower one; within one file each occurs once.
    """
    errors: list[SpecError] = []
    tests: Counter[str] = Counter()
    for index, layer in _mappings(layers):
        path = f"layers[{index}]"
        names = _strings([layer.get("name")])
        errors += _repeated(f"{path}.name", names, seen.layers, "two layers have this name", "give each its own")
        for key, name in _UNIQUE_LISTS.items():
            errors += _repeated(f"{path}.{key}", _strings(layer.get(key), name), Counter())
        errors += _repeated(f"{path}.users", _strings(layer.get("users"), "name"), seen.users)
        errors += _repeated(f"{path}.tests", _strings(layer.get("tests"), "name"), tests)
        errors += _repeated_uids(path, layer.get("users"), seen.names_by_uid)
    return errors


def missing_files(layers: object, folder: Path) -> list[SpecError]:
    """Return errors for files that layers name but that cannot be read in the recipe's folder.

    Names with a variable are skipped.
    """
    errors = []
    for index, layer in _mappings(layers):
        for number, file in _mappings(layer.get("files")):
            source = file.get("source")
            if not isinstance(source, str) or "{{" in source or source.startswith("/") or ".." in source.split("/") or not source:
                continue
            try:
                recipe_files.read(folder, source)
            except recipe_files.CannotTake as error:
                errors.append(recipe_files.as_error(error, f"layers[{index}].files[{number}].source", source))
    return errors


def unknown_secrets(files: Iterable[object], known: Collection[str]) -> list[SpecError]:
    """Return errors for secrets that commands ask for and that the spec does not have."""
    layers = [layer for file in files for _, layer in _mappings(file)]
    commands = [command for layer in layers for _, command in _mappings(layer.get("commands"))]
    wanted = dict.fromkeys(name for command in commands for name in _strings(command.get("secrets")))
    problem, fix = "a command of the recipe asks for this secret, and the spec has none of this name", "add it below secrets"
    return [SpecError(f"secrets.{name}", problem, fix, name) for name in wanted if name not in known]


def foreign_components(layers: object, distribution: object) -> list[SpecError]:
    """Return errors for components that the distribution does not have; empty for an unknown distribution."""
    known_distribution = DISTRIBUTIONS.get(distribution) if isinstance(distribution, str) else None
    if known_distribution is None:
        return []
    components = (*known_distribution.components, *known_distribution.optional_components)
    problem, fix = f"{distribution} has no component of this name", f"it has {', '.join(components)}"
    return [
        SpecError(f"layers[{index}].components", problem, fix, name)
        for index, layer in _mappings(layers)
        for name in _strings(layer.get("components"))
        if name not in components
    ]


def _repeated(
    path: str, names: Iterable[str], seen: Counter[str], problem: str = "it stands twice", fix: str = "keep one of the two"
) -> Iterator[SpecError]:
    for name in names:
        seen[name] += 1
        if seen[name] == 2:
            yield SpecError(path, problem, fix, name)


def _repeated_uids(path: str, users: object, owners: dict[int, str]) -> Iterator[SpecError]:
    """Yield an error for each user whose uid another user has, because they would own each other's files."""
    for index, user in _mappings(users):
        name, uid = user.get("name"), user.get("uid")
        if not isinstance(uid, int) or isinstance(uid, bool) or not isinstance(name, str):
            continue
        if owners.setdefault(uid, name) != name:
            yield SpecError(f"{path}.users[{index}].uid", f"{owners[uid]} has this number", "give each user its own", str(uid))


def _mappings(data: object) -> Iterator[tuple[int, Mapping[str, object]]]:
    for index, entry in enumerate(data if isinstance(data, list) else ()):
        if isinstance(entry, Mapping):
            yield index, entry


def _strings(data: object, key: str | None = None) -> Iterator[str]:
    """Return the texts in a list, or the texts at `key` in the mappings of a list."""
    values = (entry.get(key) for _, entry in _mappings(data)) if key else data if isinstance(data, list) else ()
    return (value for value in values if isinstance(value, str))
