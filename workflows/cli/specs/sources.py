"""What a command's SPEC argument may be: a file, or the name of an example."""

from pathlib import Path

from workflows import examples
from workflows.spec import ClusterSpec, load


class NoSpec(ValueError):
    """Neither a file nor an example."""

    def __init__(self, message: str, *, hint: str = "give the path of a spec, or write one with `bringup init`") -> None:
        super().__init__(message)
        self.hint = hint


def find(source: str) -> Path:
    """The file of a spec argument. Raises NoSpec naming the examples."""
    path = Path(source)
    if path.exists():
        return path
    if source in examples.names():
        return examples.path(source)
    raise NoSpec(f"{source!r} is neither a file nor an example ({', '.join(examples.names())})")


def read(source: str) -> tuple[Path, ClusterSpec]:
    """The file and the loaded spec. Raises NoSpec or SpecErrors."""
    path = find(source)
    return path, load(path)


def find_image(source: str) -> Path:
    """The file of an image spec, or a shipped example of one. Raises NoSpec."""
    path = Path(source)
    if path.exists():
        return path
    from workflows.images.nodes import shipped

    recipes = ", ".join(shipped.names())
    hint = "give the path of an image spec, or write one with `bringup init --image`"
    raise NoSpec(f"{source!r} is neither a file nor a shipped recipe ({recipes})", hint=hint)
