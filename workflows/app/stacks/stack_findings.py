"""Findings of `bringup validate` about a stack spec: a missing or stale lock, files and programs, tests of no module, limits."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from workflows.softwarestack import stack_resolution
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.stack_spec import StackSpec, load_stack, lock_name
from workflows.spec import Issue, SpecErrors
from workflows.spec.parsing.loading import read

_SOURCE = "workflows/docs/software_stacks.md"
_PROGRAMS: Final = {"zstd": "apt-get install zstd", "bwrap": "apt-get install bubblewrap"}
"""Programs that pack packages and hold builds apart, each with the command that installs it."""


def issues(path: Path) -> Iterator[Issue]:
    """Yield findings about a stack spec, its lock and files, and this machine.

    Raises SpecErrors for errors in the spec itself, together with what can be told of its lock all the same.
    """
    try:
        spec = load_stack(path)
    except SpecErrors as errors:
        further = [issue.as_error() for issue in (*_lock_of_unusable(path), *_programs())]
        raise SpecErrors(errors.source, [*errors.errors, *further]) from None
    yield from _programs()
    for note in spec.notes:
        fix = "load modules with the version that `module avail` shows, or write spack.naming: hierarchical"
        yield Issue("spack_modules", "warning", "spack", note, fix, _SOURCE)
    for note in spec.target_notes:
        fix = "correct the name, for which archspec is the list, unless the builder knows this target"
        yield Issue("cpu_target", "warning", "target", note, fix, _SOURCE)
    missing = tuple(_missing_files(spec, path.absolute().parent))
    yield from missing
    if missing:
        return
    try:
        resolved = stack_resolution.resolve(spec, path.absolute().parent)
    except LockError as error:
        yield Issue("locked", "error", "lock", str(error), error.hint, _SOURCE)
        return
    yield from _unknown_modules(spec, [package.module for package in resolved.stack.packages])


def _programs() -> Iterator[Issue]:
    """Yield a finding for each program that a build needs and this machine lacks: it may be no machine that builds."""
    for program, install in _PROGRAMS.items():
        if shutil.which(program) is None:
            problem = f"this machine has no {program}, without which it builds no package"
            yield Issue("programs", "warning", "", problem, f"{install}; or build on a machine that has it", _SOURCE)


def _missing_files(spec: StackSpec, folder: Path) -> Iterator[Issue]:
    """Yield a finding for each file beside the spec that it names and that is not there."""
    if not (folder / spec.lock_path).is_file():
        yield _no_lock(folder / spec.lock_path)
    named = {f"reframe[{index}]": name for index, name in enumerate(spec.reframe)}
    if spec.factory:
        named["factory"] = spec.factory
    if spec.easybuild is not None:
        named |= {f"easybuild.easyconfigs[{index}]": name for index, name in enumerate(spec.easybuild.offered)}
    if spec.spack is not None:
        named["spack.environment"] = spec.spack.environment
    for path, name in named.items():
        if not (folder / name).is_file():
            yield Issue("locked", "error", path, f"{folder / name} is not there", "correct the path, or add the file", _SOURCE)


def _lock_of_unusable(path: Path) -> Iterator[Issue]:
    """Yield a finding if the lock of a spec with errors is not there, as far as the spec says where it lies."""
    try:
        data = read(path)[1].data
    except SpecErrors:
        return
    assert isinstance(data, dict)
    name = data.get("lock", lock_name(is_spack="spack" in data))
    if isinstance(name, str) and not (path.absolute().parent / name).is_file():
        yield _no_lock(path.absolute().parent / name)


def _no_lock(path: Path) -> Issue:
    return Issue(
        "locked", "error", "lock", f"{path}: the lock of this stack is not there", "make it: `bringup stack lock`", _SOURCE
    )


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
