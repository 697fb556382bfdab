"""Read a `spack.yaml` as far as builds need it: settings of packages and compilers, and package repositories with their recipes.

Settings that say where things lie (`config`, `mirrors`, `modules`, `view`) belong to a stack's own spec and do not reach builds.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from steps.contract.canonical import digest
from steps.softwarestack.contract.spack_layout import SETTINGS
from steps.softwarestack.contract.stack_input import StackTestFile
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import LockError
from workflows.spec.parsing.document import LARGEST_BYTES, BadDocument, parse

MOST_RECIPES: Final = 5_000
"""Most files of the package repositories that travel with a stack; larger repositories belong into the builder image."""
_LARGEST_RECIPE: Final = 1 << 20
_HINT: Final = "correct spack.environment, the spack.yaml"
_LEFT_OUT: Final = frozenset({"__pycache__", ".git"})
_PLACES: Final = frozenset({"config", "mirrors", "modules", "repos", "view"})
"""Sections that say where things lie. Recipes have a digest of their own."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9+._-]*")
_MOVING: Final = {
    "include": "settings of other files are not locked with the stack",
    "develop": "sources under development are not locked with the stack",
}


@dataclass(frozen=True, kw_only=True)
class SpackEnvironment:
    """A `spack.yaml`: the sections that reach builds, repositories in order, and recipes with their bytes.

    `repositories` are absolute paths, or names of folders that `recipes` fill (see `SpackFiles`). `folders` are the paths of all
    repositories on this machine. `content` is the whole section `spack`.
    """

    settings: Mapping[str, Any]
    repositories: tuple[str, ...]
    folders: tuple[Path, ...]
    recipes: tuple[StackTestFile, ...]
    files: tuple[bytes, ...]
    content: Mapping[str, Any]

    @property
    def recipes_digest(self) -> str:
        """Digest of all recipes, by which a lock remembers them."""
        return digest([[recipe.path, recipe.sha256] for recipe in self.recipes])

    @property
    def wishes_digest(self) -> str:
        """Digest of all sections that decide what Spack locks, such as `specs` and `packages`, by which a lock remembers them."""
        wishes = {name: section for name, section in self.content.items() if name not in _PLACES}
        return f"sha256:{hashlib.sha256(msgspec.json.encode(wishes, order='sorted')).hexdigest()}"


def read(path: Path) -> SpackEnvironment:
    """Return a `spack.yaml`. Raises `LockError` if it is none, or has parts that a stack cannot lock."""
    content = _content(path)
    for name, reason in _MOVING.items():
        if name in content:
            raise LockError(f"{path}: section {name}: {reason}", f"write what it has into {path.name}")
    recipes, files, names, folders = list[StackTestFile](), list[bytes](), list[str](), list[Path]()
    for entry in _repositories(content, path):
        folders.append(path.parent / entry)
        if os.path.isabs(entry):
            names.append(entry)
            continue
        name = f"{len(names)}-{Path(entry).name}"
        names.append(name)
        for relative, data in _recipes(path.parent / entry):
            recipes.append(StackTestFile(path=f"{name}/{relative}", sha256=hashlib.sha256(data).hexdigest()))
            files.append(data)
    settings = {name: section for name, section in content.items() if name in SETTINGS}
    return SpackEnvironment(
        settings=settings,
        repositories=tuple(names),
        folders=tuple(folders),
        recipes=tuple(recipes),
        files=tuple(files),
        content=content,
    )


def _content(path: Path) -> Mapping[str, Any]:
    try:
        data = parse(read_bounded(path, LARGEST_BYTES, _HINT).decode()).data
    except UnicodeDecodeError as error:
        raise LockError(f"{path}: it is not UTF-8 text", _HINT) from error
    except BadDocument as error:
        first = error.errors[0]
        raise LockError(f"{path}:{first.line}: {first.problem}", first.fix or _HINT) from error
    content = data.get("spack") if isinstance(data, dict) else None
    if not isinstance(content, dict):
        raise LockError(f"{path}: it is no environment of Spack: it has no section spack", _HINT)
    return content


def _repositories(content: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Yield the paths of package repositories: a list until Spack 0.23, by name since 1.0."""
    section = content.get("repos") or []
    entries = list(section.values()) if isinstance(section, dict) else section
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, str) or not all(map(_NAME.fullmatch, Path(entry).parts[os.path.isabs(entry) :])):
            raise LockError(f"{path}: repos: {str(entry)[:80]!r} is no path of a folder in plain characters", "write its path")
        yield entry


def _recipes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a repository with their paths in it, in order. Raises `LockError` if it is none or too large."""
    if not (folder / "repo.yaml").is_file():
        raise LockError(f"{folder}: it is no package repository: it has no repo.yaml", _HINT)
    count = 0
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(names):
            path, count = Path(parent, name), count + 1
            relative = str(path.relative_to(folder))
            if path.is_symlink() or not all(map(_NAME.fullmatch, path.relative_to(folder).parts)):
                raise LockError(f"{path}: it is a link, or its name has odd characters", "move it out of the package repository")
            if count > MOST_RECIPES:
                raise LockError(
                    f"{folder}: it has more than {MOST_RECIPES} files", "put it into the builder image, by absolute path"
                )
            yield relative, read_bounded(path, _LARGEST_RECIPE, "fetch large patches by URL")
