"""Changes from one lock of a stack to a newer one, package by package, with the reason of each. Pure."""

from enum import StrEnum

from msgspec import Struct

from workflows.softwarestack.build_graph import BuildGraph, PackageNode
from workflows.softwarestack.easybuild_lock import EasyBuildLock, LockedEasyconfig


class ChangeKind(StrEnum):
    """Kind of a change of a lock."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class LockChange(Struct, frozen=True, kw_only=True):
    """A package that a newer lock adds, removes or has in another form, or another property of the lock, such as its roots.

    `package` is the module's full name for EasyBuild, behind its CPU target in a stack with several; else the package's name.
    `before` and `after` are versions, `hash` is that of the newer lock. `line` is the change in one line.
    """

    kind: ChangeKind
    package: str
    line: str
    before: str = ""
    after: str = ""
    why: str = ""
    hash: str = ""


def easybuild_changes(earlier: EasyBuildLock | None, made: EasyBuildLock) -> tuple[LockChange, ...]:
    """Return the modules that are new, gone, or built from something else than before."""
    several = bool(made.targets or (earlier and earlier.targets))
    before, old_roots = (_by_module(earlier, several), earlier.roots) if earlier else ({}, ())
    after = _by_module(made, several)
    changes = [
        _removed(module, f"- {module}", package.version, is_root=package.hash in old_roots)
        for module, package in before.items()
        if module not in after
    ]
    for module, package in after.items():
        if module not in before:
            changes.append(_added(module, f"+ {module}", package.version, package.hash, is_root=package.hash in made.roots))
        elif before[module].hash != package.hash:
            why = _easybuild_reason(before[module], package, earlier, made)
            changes.append(
                LockChange(
                    kind=ChangeKind.CHANGED,
                    package=module,
                    line=f"~ {module}: {why}",
                    before=before[module].version,
                    after=package.version,
                    why=why,
                    hash=package.hash,
                )
            )
    return tuple(changes)


def _by_module(lock: EasyBuildLock, several: bool) -> dict[str, LockedEasyconfig]:
    """Return the packages of a lock by module, behind the CPU target if one of the compared locks has several."""
    prefixes = {package.hash: f"{package.target or lock.target}/" if several else "" for package in lock.packages}
    return {f"{prefixes[package.hash]}{package.module}": package for package in lock.packages}


def spack_changes(earlier: BuildGraph | None, made: BuildGraph) -> tuple[LockChange, ...]:
    """Return the packages that are new, gone, or locked in another form, by name, and one change if only the roots differ."""
    before = earlier.nodes if earlier else {}
    gone = [node for hash_, node in before.items() if hash_ not in made.nodes]
    new = [node for hash_, node in made.nodes.items() if hash_ not in before]
    changes = list[LockChange]()
    for name in sorted({node.name for node in (*gone, *new)}):
        old, fresh = [node for node in gone if node.name == name], [node for node in new if node.name == name]
        if len(old) == len(fresh) == 1:
            changes.append(_spack_change(old[0], fresh[0]))
        else:
            lost = earlier.roots if earlier else ()
            changes += [
                _removed(node.name, f"- {node.title} {node.hash[:7]}", node.version, is_root=node.hash in lost) for node in old
            ]
            changes += [
                _added(node.name, f"+ {node.title} {node.hash[:7]}", node.version, node.hash, is_root=node.hash in made.roots)
                for node in fresh
            ]
    if earlier and not changes and set(earlier.roots) != set(made.roots):
        line = f"~ roots: {len(earlier.roots)} → {len(made.roots)}"
        why = f"{len(earlier.roots)} roots before, {len(made.roots)} after"
        changes.append(LockChange(kind=ChangeKind.CHANGED, package="roots", line=line, why=why))
    return tuple(changes)


def changed_recipes() -> LockChange:
    """Return the change of a lock of Spack whose recipes differ in what no hash of a package covers."""
    return _unhashed("recipes")


def changed_environment() -> LockChange:
    """Return the change of a lock of Spack whose environment has other specs or settings, and the same packages."""
    return _unhashed("environment")


def _unhashed(subject: str) -> LockChange:
    why = "without another hash of a package"
    return LockChange(kind=ChangeKind.CHANGED, package=subject, line=f"~ {subject}, {why}", why=why)


def _added(package: str, line: str, version: str, hash_: str, *, is_root: bool) -> LockChange:
    why = "a root that was none" if is_root else "something needs it now"
    return LockChange(kind=ChangeKind.ADDED, package=package, line=line, after=version, why=why, hash=hash_)


def _removed(package: str, line: str, version: str, *, is_root: bool) -> LockChange:
    why = "a root no longer" if is_root else "nothing needs it any more"
    return LockChange(kind=ChangeKind.REMOVED, package=package, line=line, before=version, why=why)


def _spack_change(before: PackageNode, after: PackageNode) -> LockChange:
    return LockChange(
        kind=ChangeKind.CHANGED,
        package=after.name,
        line=f"~ {after.name}: {before.version} {before.hash[:7]} → {after.version} {after.hash[:7]}",
        before=before.version,
        after=after.version,
        why=_spack_reason(before, after),
        hash=after.hash,
    )


def _spack_reason(before: PackageNode, after: PackageNode) -> str:
    if before.version != after.version:
        return "another version"
    if (before.compiler, before.target) != (after.compiler, after.target):
        return "its compiler or CPU target changed"
    if set(before.dependencies) != set(after.dependencies):
        return "something that it needs changed"
    return "its options or its recipe changed"


def _easybuild_reason(before: LockedEasyconfig, after: LockedEasyconfig, earlier: EasyBuildLock | None, made: EasyBuildLock) -> str:
    if before.sha256 != after.sha256:
        return "its easyconfig changed"
    if before.patches != after.patches:
        return "its patches changed"
    if earlier is not None and earlier.builder != made.builder:
        return "EasyBuild's release, the naming scheme, the language of modules or the CPU target changed"
    return "something that it needs changed"
