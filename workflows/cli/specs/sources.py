"""What a command's SPEC argument may be: a file, or the name of an example."""

from pathlib import Path

from workflows import examples
from workflows.spec import ClusterSpec, SpecError, SpecErrors, load
from workflows.spec.loading import read as read_document
from workflows.spec.problems import line_of

_OTHERS = {
    "Image": ("the spec of a node image", "`bringup image build {path}` takes it"),
    "ImageRecipe": ("the recipe of a node image", "`bringup image build` takes an image spec that names it"),
    "Factory": ("the spec of a factory", "`bringup init` writes one of a cluster"),
    "Stack": ("the spec of a software stack", "`bringup init` writes one of a cluster"),
}
"""Kinds of other files that are given where the spec of a cluster is wanted: what they are, and who takes them."""


class NoSpec(ValueError):
    """Neither a file nor an example."""

    def __init__(self, message: str, *, hint: str = "give the path of a spec, or write one with `bringup init`") -> None:
        super().__init__(message)
        self.hint = hint


def find(source: str) -> Path:
    """The file of a spec argument. Raises NoSpec naming the examples."""
    path = Path(source)
    if source in examples.names() and not path.is_file():  # a folder of that name is no spec
        return examples.path(source)
    if path.exists():
        return path
    raise NoSpec(f"{source!r} is neither a file nor an example ({', '.join(examples.names())})")


def beside(source: str) -> Path:
    """Where the relative paths of a spec begin: in its folder; here, for an example and for what comes through a pipe."""
    path = Path(source)
    return path.absolute().parent if path.is_file() else Path.cwd()


def read(source: str) -> tuple[Path, ClusterSpec]:
    """The file and the loaded spec. Raises NoSpec; SpecErrors, which is one error for a file of another kind."""
    path = find(source)
    try:
        return path, load(path)
    except SpecErrors:
        _refuse_others(path)
        raise


def _refuse_others(path: Path) -> None:
    """Raise SpecErrors for a file that says to be of another kind. A pipe is not read twice."""
    if not path.is_file():
        return
    name, document = read_document(path)
    kind = document.data.get("kind") if isinstance(document.data, dict) else None
    if isinstance(kind, str) and kind in _OTHERS:
        what, fix = _OTHERS[kind]
        error = SpecError("kind", f"this is {what}, and none of a cluster", fix.format(path=path), kind, line_of("kind", document))
        raise SpecErrors(name, [error])


def find_image(source: str) -> Path:
    """The file of an image spec, or a shipped example of one. Raises NoSpec."""
    path = Path(source)
    if path.exists():
        return path
    from workflows.images.nodes import shipped

    recipes = ", ".join(shipped.names())
    hint = "give the path of an image spec, or write one with `bringup init --image`"
    raise NoSpec(f"{source!r} is neither a file nor a shipped recipe ({recipes})", hint=hint)
