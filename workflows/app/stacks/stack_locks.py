"""The use case of `bringup stack lock`: make the lock of a stack, and tell what it changes."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from steps.clients import easybuild_python
from workflows.app.stacks import spack_concretization
from workflows.softwarestack import easybuild_lock, easybuild_resolution, lock_changes, spack_lock, spack_resolution
from workflows.softwarestack.build_graph import BuildGraph, LockError
from workflows.softwarestack.easybuild_resolution import EasyBuildSettings
from workflows.softwarestack.easybuild_section import EasyBuildSection
from workflows.softwarestack.lock_changes import LockChange
from workflows.softwarestack.stack_spec import SpackSettings, StackSpec, load_stack


@dataclass(frozen=True)
class MadeLock:
    """A lock that was made for a spec, its file, its graph, and what differs from the lock before. `is_first`: there was none."""

    spec: StackSpec
    path: Path
    graph: BuildGraph
    changes: tuple[LockChange, ...]
    text: str
    is_first: bool

    @property
    def packages(self) -> int:
        """Return the number of locked packages."""
        return len(self.graph.nodes)

    def write(self) -> None:
        """Write the lock by renaming a temporary file, so that no reader sees a part of it."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(self.text)
            Path(name).chmod(0o644)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def make(source: str) -> MadeLock:
    """Return a new lock for a stack spec. Raises `SpecErrors` for the spec, `LockError` if it cannot be locked."""
    spec = load_stack(Path(source))
    folder = Path(source).resolve().parent
    if spec.spack is not None:
        return _of_spack(spec, spec.spack, folder)
    assert spec.easybuild is not None
    made = easybuild_resolution.lock(_settings(spec, spec.easybuild, folder))
    path = folder / spec.lock_path
    earlier = easybuild_lock.read(path) if path.exists() else None
    return MadeLock(
        spec=spec,
        path=path,
        graph=easybuild_lock.graph(made, str(path)),
        changes=lock_changes.easybuild_changes(earlier, made),
        text=easybuild_lock.text(made),
        is_first=earlier is None,
    )


def _of_spack(spec: StackSpec, section: SpackSettings, folder: Path) -> MadeLock:
    """Return a new lock of Spack's; nothing changes if it names the packages and roots of the lock that is there."""
    path = folder / spec.lock_path
    content, graph = spack_concretization.lock(spec, section, folder)
    earlier = spack_lock.read(path) if path.exists() else None
    changes = lock_changes.spack_changes(earlier, graph)
    if not changes:
        before, after = spack_resolution.wishes_of(path.read_bytes()), spack_resolution.wishes_of(content)
        if before.recipes != after.recipes:
            changes = (lock_changes.changed_recipes(),)
        elif before.environment != after.environment:
            changes = (lock_changes.changed_environment(),)
    return MadeLock(spec=spec, path=path, graph=graph, changes=changes, text=content.decode(), is_first=earlier is None)


def _settings(spec: StackSpec, section: EasyBuildSection, folder: Path) -> EasyBuildSettings:
    missing = [path for path in (*section.robot, *section.offered) if not (folder / path).exists()]
    if missing:
        raise LockError(f"{folder / missing[0]} is not there", "correct easybuild.easyconfigs or easybuild.robot")
    interpreter = easybuild_python.find_interpreter(os.environ)
    if not interpreter:
        raise LockError(easybuild_python.MISSING, easybuild_python.HINT)
    return EasyBuildSettings(
        interpreter=interpreter,
        release=section.release,
        offers={target: tuple(folder / path for path in section.offered_for(target)) for target in spec.cpu_targets},
        robot=tuple(folder / path for path in section.robot),
        naming=section.naming,
        syntax=spec.module_syntax,
    )
