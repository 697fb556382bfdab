"""Findings of `bringup validate` about a stack spec: a lock that does not fit to the spec or its files, tests of no module."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from workflows.softwarestack import stack_resolution
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.stack_spec import StackSpec, load_stack
from workflows.spec import Issue

_SOURCE = "workflows/docs/software_stacks.md"


def issues(path: Path) -> Iterator[Issue]:
    """Yield findings about a stack spec and its lock. Raises SpecErrors for errors in the spec itself."""
    spec = load_stack(path)
    try:
        resolved = stack_resolution.resolve(spec, path.absolute().parent)
    except LockError as error:
        yield Issue("locked", "error", "lock", str(error), error.hint, _SOURCE)
        return
    yield from _unknown_modules(spec, [package.module for package in resolved.stack.packages])


def _unknown_modules(spec: StackSpec, locked: Iterable[str]) -> Iterator[Issue]:
    """Yield a warning for each test whose module no package of the lock makes: it would fail after all builds.

    Only names are compared, without versions, which Lmod chooses. A module file may open folders with more modules, hence no error.
    """
    paths = (path.split("/") for module in locked for path in (module, module.rpartition("/")[0]))
    known = {"/".join(parts[start:]) for parts in paths for start in range(len(parts))}
    for index, test in enumerate(spec.tests):
        for module in test.modules:
            if not known.intersection((module, module.rpartition("/")[0] or module)):
                problem = f"no package of the lock makes the module {module}, which test {test.name} loads"
                fix = "add the package that makes it, or correct the name"
                yield Issue("test_modules", "warning", f"tests[{index}].modules", problem, fix, _SOURCE, ("stack_test/tests",))
