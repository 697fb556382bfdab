"""Find and read the file of a command's SPEC argument (a file, or the name of an example), and tell its kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workflows import examples
from workflows.nodeimage import recipe_files
from workflows.spec import SpecError, SpecErrors
from workflows.spec.parsing.loading import read as read_document
from workflows.spec.parsing.validation_errors import line_of

if TYPE_CHECKING:
    from workflows.spec import ClusterSpec

IMAGE_SPEC, FACTORY_SPEC, STACK_SPEC = "Image", "Factory", "Stack"
_OTHERS = {
    IMAGE_SPEC: ("this is the spec of a node image, and none of a cluster", "`bringup image build {path}` takes it"),
    "ImageRecipe": (
        "this is the recipe of a node image, and none of a cluster",
        "`bringup image build` takes an image spec that names it",
    ),
    FACTORY_SPEC: ("this is the spec of a factory, and none of a cluster", "`bringup factory up {path}` takes it"),
    STACK_SPEC: ("this is the spec of a software stack, and none of a cluster", "`bringup stack build {path}` takes it"),
}
"""Kinds of files that are no cluster spec, each with the problem and the fix to print if it is given as one."""


class NoSpec(ValueError):
    """Error for an argument that is neither a file nor an example."""

    def __init__(self, message: str, *, hint: str = "give the path of a spec, or write one with `bringup init`") -> None:
        super().__init__(message)
        self.hint = hint


def find(source: str) -> Path:
    """Return the file that a spec argument names. Raises NoSpec, which lists the examples."""
    path = Path(source)
    if source in examples.names() and not path.is_file():  # a folder with the name of an example does not hide the example
        return examples.path(source)
    if path.exists():
        return path
    raise NoSpec(f"{source!r} is neither a file nor an example ({', '.join(examples.names())})")


def beside(source: str) -> Path:
    """Return the folder that a spec's relative paths start from: its own, or the working directory for examples and pipes."""
    path = Path(source)
    return path.absolute().parent if path.is_file() else Path.cwd()


def read(source: str) -> tuple[Path, ClusterSpec]:
    """Return the path and the loaded spec that an argument names.

    Raises NoSpec, or SpecErrors, with a single error for another kind.
    """
    from workflows.spec.cluster_loading import load  # other kinds of specs need no models of clusters

    path = find(source)
    try:
        return path, load(path)
    except SpecErrors:
        if path.is_file():  # a pipe is not read twice
            refuse_kinds(path, _OTHERS)
        raise


def refuse_kinds(path: Path, kinds: Mapping[str, tuple[str, str]]) -> None:
    """Raise SpecErrors with the problem and fix in `kinds` if the file is of one of these kinds, or if it cannot be read."""
    name, document = read_document(path)
    kind = document.kind
    if isinstance(kind, str) and kind in kinds:
        problem, fix = kinds[kind]
        raise SpecErrors(name, [SpecError("kind", problem, fix.format(path=path), kind, line_of("kind", document))])


def kind_of(path: Path) -> object:
    """Return the `kind` that a file states, or None. Raises SpecErrors for a file that cannot be read."""
    return read_document(path)[1].kind


def is_image(source: str) -> bool:
    """Return True if a spec argument is a file of kind Image. Raises SpecErrors for a file that cannot be read."""
    path = Path(source)
    return path.is_file() and kind_of(path) == IMAGE_SPEC


def is_factory(source: str) -> bool:
    """Return True if a spec argument is a file of kind Factory. Raises SpecErrors for a file that cannot be read."""
    path = Path(source)
    return path.is_file() and kind_of(path) == FACTORY_SPEC


def is_stack(source: str) -> bool:
    """Return True if a spec argument is a file of kind Stack. Raises SpecErrors for a file that cannot be read."""
    path = Path(source)
    return path.is_file() and kind_of(path) == STACK_SPEC


def find_image(source: str) -> Path:
    """Return the file of an image spec argument. Raises NoSpec, which lists the shipped recipes."""
    path = Path(source)
    if path.exists():
        return path
    recipes = ", ".join(recipe_files.shipped_names())
    hint = "give the path of an image spec, or write one with `bringup init --image`"
    raise NoSpec(f"{source!r} is neither a file nor a shipped recipe ({recipes})", hint=hint)
