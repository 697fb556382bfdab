"""Resolve a stack spec: read its lock, the easyconfigs that the lock names, and the build cache.

Nothing is changed. Files of easyconfigs may have been edited since the lock was made, so each is compared with the lock.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace as with_fields

from steps.contract.canonical import digest_bytes
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import (
    BuildCacheLocation,
    StackInput,
    StackLimits,
    StackPackage,
    StackSource,
    StackTestCase,
    StackTestFile,
)
from workflows.softwarestack import easybuild_lock, package_classes, stack_plan
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import BuildGraph, LockError
from workflows.softwarestack.easybuild_lock import EasyBuildLock, LockedEasyconfig
from workflows.softwarestack.stack_plan import StackPlan
from workflows.softwarestack.stack_spec import PACKAGE_KEY, StackSpec

EASYBUILD: Final = "easybuild"
_LARGEST_FILE: Final = 4 << 20
"""Largest easyconfig, patch or test file: larger patches are fetched like sources."""
_ENTRY: Final = re.compile(r"([a-z0-9]{16,64})\.json")
_AGAIN: Final = "`bringup stack lock` makes the lock again"


@dataclass(frozen=True, kw_only=True)
class ResolvedStack:
    """A stack that can be planned: what tasks read, still without batches, the graph of its lock, and the bytes of its files."""

    stack: StackInput
    graph: BuildGraph
    files: tuple[bytes, ...]

    def planned(self, cached: Iterable[str]) -> StackPlan:
        """Return the plan of the builds, of which `cached` are done."""
        return stack_plan.plan(self.graph, cached)


def resolve(spec: StackSpec, folder: Path, origin: str = "") -> ResolvedStack:
    """Return the resolved stack of a spec in a folder. Raises `LockError` for a lock or a file that cannot be used."""
    if spec.easybuild is None:
        raise LockError("this version plans stacks of Spack and does not build them yet", "see `bringup stack plan`")
    path = folder / spec.lock_path
    if not path.is_file():
        raise LockError(f"{path}: the lock of this stack is not there", "make it: `bringup stack lock`")
    content = read_bounded(path, easybuild_lock.LARGEST_BYTES, _AGAIN)
    lock = easybuild_lock.parse(content, str(path))
    _require_settings(spec, lock, path)
    graph = easybuild_lock.graph(lock, str(path))
    robot = tuple(folder / name for name in spec.easybuild.robot)
    reframe = {name: read_bounded(folder / name, _LARGEST_FILE, "correct reframe") for name in spec.reframe}
    files = dict[str, bytes]()
    for package in lock.packages:
        files |= _files_of(package, robot)
    files |= {hashlib.sha256(data).hexdigest(): data for data in reframe.values()}
    stack = _input(spec, lock, graph)
    tests = tuple(StackTestFile(path=name, sha256=hashlib.sha256(data).hexdigest()) for name, data in reframe.items())
    stack = with_fields(stack, reframe=tests, lock=digest_bytes(content), origin=origin)
    return ResolvedStack(stack=stack, graph=graph, files=tuple(files[sha256] for sha256 in sorted(files)))


def cached_packages(folder: Path, root: str) -> frozenset[str]:
    """Return the hashes of the packages that a build cache holds for an install root; none if there is no such folder.

    An entry counts if its description is there, which is written last. Its bytes are checked when the package is taken
    (`steps.softwarestack.build_cache` has the layout).
    """
    try:
        names = [path.name for path in (folder / stack_input.prefix_digest(root)).iterdir()]
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise LockError(f"{folder}: cannot be read: {error.strerror}", "make the cache readable for this user") from error
    return frozenset(match[1] for name in names if (match := _ENTRY.fullmatch(name)))


def _require_settings(spec: StackSpec, lock: EasyBuildLock, path: Path) -> None:
    """Raise `LockError` if the lock was made with another release of EasyBuild, naming scheme or CPU target than the spec has."""
    assert spec.easybuild is not None
    wanted = (spec.easybuild.release, spec.easybuild.naming, spec.target)
    for locked, name, value in zip(lock.builder, ("easybuild.release", "easybuild.naming", "target"), wanted, strict=True):
        if locked != value:
            raise LockError(f"{path}: it was made for {name} {locked}, and the spec says {value}", _AGAIN)


def _input(spec: StackSpec, lock: EasyBuildLock, graph: BuildGraph) -> StackInput:
    packages = {package.hash: package for package in lock.packages}
    signing = spec.package_signing
    return StackInput(
        name=spec.name,
        backend=EASYBUILD,
        release=lock.easybuild,
        root=spec.publish.root,
        packages=tuple(_package(packages[hash_], spec.jobs) for hash_ in graph.order),
        roots=lock.roots,
        cache=BuildCacheLocation(
            folder=spec.cache or "", key=PACKAGE_KEY if signing.sign is not None else "", signers=signing.signers
        ),
        naming=lock.naming,
        target=lock.target,
        builder=spec.builder,
        sources=spec.sources,
        tests=tuple(
            StackTestCase(
                name=test.name,
                command=test.command,
                modules=test.modules,
                timeout_seconds=max(1, int(test.timeout.total_seconds())),
            )
            for test in spec.tests
        ),
        limits=StackLimits(
            build_seconds=int(spec.limits.build.total_seconds()),
            load_seconds=int(spec.limits.load.total_seconds()),
            reframe_seconds=int(spec.limits.reframe.total_seconds()),
        ),
    )


def _package(package: LockedEasyconfig, most_jobs: int) -> StackPackage:
    size = package_classes.shipped().of(package.name.lower())  # EasyBuild writes HDF5
    return StackPackage(
        hash=package.hash,
        name=package.name,
        version=package.version,
        module=package.module,
        external=package.external,
        runtime=package.runtime,
        build=package.build,
        easyconfig=package.easyconfig,
        sha256=package.sha256,
        sources=tuple(StackSource(name=file.name, sha256=file.sha256) for file in package.sources),
        patches=tuple(StackSource(name=file.name, sha256=file.sha256) for file in package.patches),
        size_class="" if package.external else size.name,
        jobs=min(size.jobs, most_jobs),
        memory_mib=0 if package.external else size.memory_gib << 10,
    )


def _files_of(package: LockedEasyconfig, robot: Iterable[Path]) -> Mapping[str, bytes]:
    """Return the easyconfig of a package and those of its patches that lie beside it, by SHA-256."""
    if package.external:
        return {}
    for folder in robot:
        path = folder / package.easyconfig
        if path.is_file():
            data = read_bounded(path, _LARGEST_FILE, _AGAIN)
            if hashlib.sha256(data).hexdigest() != package.sha256:
                raise LockError(f"{path}: it is another one than the lock names", _AGAIN)
            return {package.sha256: data, **dict(_patches_of(package, path.parent))}
    raise LockError(f"{package.easyconfig} of the lock is in no robot folder", _AGAIN)


def _patches_of(package: LockedEasyconfig, folder: Path) -> Iterator[tuple[str, bytes]]:
    for patch in package.patches:
        path = folder / patch.name
        if path.is_file() and path.stat().st_size <= _LARGEST_FILE:
            data = read_bounded(path, _LARGEST_FILE, _AGAIN)
            if hashlib.sha256(data).hexdigest() != patch.sha256:
                raise LockError(f"{path}: it is another one than the lock names", _AGAIN)
            yield patch.sha256, data
