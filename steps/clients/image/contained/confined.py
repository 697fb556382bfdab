"""Says where a path of a root leads, for code of ours that reads there: never out of the root, whatever its links say."""

from pathlib import Path

from steps.errors import BadTask


def place(root: Path, path: str) -> Path:
    """The path without links, below a root that nobody changes meanwhile. Raises BadTask where its links lead out: those that begin
    with / do, as this machine sees them."""
    try:
        found = (root / path).resolve()
    except RuntimeError as error:
        raise BadTask(f"the root's /{path} is a link that leads in a circle", hint="see which layer makes it") from error
    if not found.is_relative_to(root.resolve()):
        raise BadTask(
            f"the root's /{path} is a link that leads out of the root", hint="have the layer make it a relative one, or a file"
        )
    return found
