"""Findings of `bringup validate` about a stack spec: a lock that is missing, or that does not fit to the spec or to its files."""

from collections.abc import Iterator
from pathlib import Path

from workflows.softwarestack import stack_resolution
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.stack_spec import load_stack
from workflows.spec import Issue

_SOURCE = "workflows/docs/software_stacks.md"


def issues(path: Path) -> Iterator[Issue]:
    """Yield findings about a stack spec and its lock. Raises SpecErrors for errors in the spec itself."""
    spec = load_stack(path)
    try:
        stack_resolution.resolve(spec, path.absolute().parent)
    except LockError as error:
        yield Issue("locked", "error", "lock", str(error), error.hint, _SOURCE)
