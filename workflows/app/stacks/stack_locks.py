"""The use case of `bringup stack lock`: make the lock of a stack, and tell what it changes."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from steps.clients import easybuild_python
from workflows.app.stacks import spack_concretization
from workflows.softwarestack import easybuild_lock, easybuild_resolution, spack_lock, spack_resolution
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.easybuild_lock import EasyBuildLock, LockedEasyconfig
from workflows.softwarestack.easybuild_resolution import EasyBuildSettings
from workflows.softwarestack.stack_spec import EasyBuildSection, SpackSettings, StackSpec, load_stack


@dataclass(frozen=True)
class MadeLock:
    """A lock that was made, the file that it belongs to, and one line for each package that differs from the lock before."""

    path: Path
    packages: int
    changes: tuple[str, ...]
    text: str

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
    return MadeLock(path, len(made.packages), changes(earlier, made), easybuild_lock.text(made))


def _of_spack(spec: StackSpec, section: SpackSettings, folder: Path) -> MadeLock:
    """Return a new lock of Spack's; nothing changes if it names the packages and roots of the lock that is there."""
    path = folder / spec.lock_path
    content, graph = spack_concretization.lock(spec, section, folder)
    earlier = spack_lock.read(path) if path.exists() else None
    lines = spack_concretization.changes(earlier, graph)
    if not lines and spack_resolution.recipes_of(path.read_bytes()) != spack_resolution.recipes_of(content):
        lines = ("~ recipes, without another hash of a package",)
    return MadeLock(path, len(graph.nodes), lines, content.decode())


def changes(earlier: EasyBuildLock | None, made: EasyBuildLock) -> tuple[str, ...]:
    """Return one line for each package that is new, gone, or another one than before, by module."""
    before = {package.module: package for package in earlier.packages} if earlier else {}
    after = {package.module: package for package in made.packages}
    lines = [f"- {module}" for module in before if module not in after]
    for module, package in after.items():
        if module not in before:
            lines.append(f"+ {module}")
        elif before[module].hash != package.hash:
            lines.append(f"~ {module}: {_reason(before[module], package, earlier, made)}")
    return tuple(lines)


def _reason(before: LockedEasyconfig, after: LockedEasyconfig, earlier: EasyBuildLock | None, made: EasyBuildLock) -> str:
    if before.sha256 != after.sha256:
        return "its easyconfig changed"
    if before.patches != after.patches:
        return "its patches changed"
    if earlier is not None and earlier.builder != made.builder:
        return "EasyBuild's release, the naming scheme or the CPU target changed"
    return "something that it needs changed"


def _settings(spec: StackSpec, section: EasyBuildSection, folder: Path) -> EasyBuildSettings:
    missing = [path for path in (*section.robot, *section.easyconfigs) if not (folder / path).exists()]
    if missing:
        raise LockError(f"{folder / missing[0]} is not there", "correct easybuild.easyconfigs or easybuild.robot")
    interpreter = easybuild_python.find_interpreter(os.environ)
    if not interpreter:
        raise LockError(easybuild_python.MISSING, easybuild_python.HINT)
    return EasyBuildSettings(
        interpreter=interpreter,
        release=section.release,
        easyconfigs=tuple(folder / path for path in section.easyconfigs),
        robot=tuple(folder / path for path in section.robot),
        naming=section.naming,
        target=spec.target,
    )
