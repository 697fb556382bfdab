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
from steps.contract.detachment import NO_FACTORY, Factory
from steps.softwarestack.contract import spack_layout, stack_input
from steps.softwarestack.contract.output_patterns import OutputReference
from steps.softwarestack.contract.stack_input import (
    BuildCacheLocation,
    StackInput,
    StackLimits,
    StackPackage,
    StackSource,
    StackTestCase,
    StackTestFile,
    StackView,
)
from steps.softwarestack.contract.stack_tests import name_for
from workflows.softwarestack import easybuild_lock, package_classes, smoke_tests, spack_resolution, stack_plan
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import BuildGraph, LockError
from workflows.softwarestack.easybuild_lock import EasyBuildLock, LockedEasyconfig
from workflows.softwarestack.easybuild_section import EasyBuildSection
from workflows.softwarestack.stack_plan import StackPlan
from workflows.softwarestack.stack_spec import PACKAGE_KEY, FigureReference, StackSpec

EASYBUILD, SPACK = "easybuild", "spack"
"""Names of the backends."""
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

    def planned(self, cached: Iterable[str], measured: Mapping[str, float] | None = None) -> StackPlan:
        """Return the plan of the builds, of which `cached` are done; `measured` has seconds of earlier builds by hash or name."""
        return stack_plan.plan(self.graph, cached, measured)


def resolve(spec: StackSpec, folder: Path, origin: str = "") -> ResolvedStack:
    """Return the resolved stack of a spec in a folder.

    Raises `LockError` for a lock or a file that cannot be used, and `SpecErrors` for the spec of a factory.
    """
    factory = _factory(folder / spec.factory) if spec.factory else NO_FACTORY
    if spec.spack is not None:
        made = spack_resolution.resolve(spec, spec.spack, folder)
        tests, test_files = _test_files(spec, folder)
        stack = _input(spec, SPACK, made.release, made.packages, made.graph.roots)
        naming = spec.spack.naming if spec.spack.naming == spack_layout.HIERARCHICAL else ""  # so keys of flat stacks stay
        stack = with_fields(stack, spack=made.spack, naming=naming)
        stack = with_fields(stack, reframe=tests, lock=digest_bytes(made.lock), origin=origin, factory=factory)
        return ResolvedStack(stack=stack, graph=made.graph, files=_ordered(made.files, test_files))
    path = folder / spec.lock_path
    if not path.is_file():
        raise LockError(f"{path}: the lock of this stack is not there", "make it: `bringup stack lock`")
    content = read_bounded(path, easybuild_lock.LARGEST_BYTES, _AGAIN)
    lock = easybuild_lock.parse(content, str(path))
    _require_settings(spec, lock, path)
    graph = easybuild_lock.graph(lock, str(path))
    by_hash = {package.hash: package for package in lock.packages}
    packages = tuple(_package(by_hash[hash_], spec.jobs) for hash_ in graph.order)
    assert spec.easybuild is not None
    robot = tuple(folder / name for name in spec.easybuild.robot)
    files = dict[str, bytes]()
    for package in lock.packages:
        files |= _files_of(package, robot)
    # after the files: an edited root is a changed easyconfig, not another root
    for target in spec.cpu_targets:
        _require_roots(spec.easybuild, lock, folder, path, target)
    tests, test_files = _test_files(spec, folder)
    stack = _input(spec, EASYBUILD, lock.easybuild, packages, lock.roots)
    stack = with_fields(stack, naming=lock.naming, reframe=tests, lock=digest_bytes(content), origin=origin, factory=factory)
    return ResolvedStack(stack=stack, graph=graph, files=_ordered(files, test_files))


def _factory(path: Path) -> Factory:
    """Return the hosts and folders of the factory that a spec describes. Raises `SpecErrors`."""
    from workflows.spec.pipelines.factory_addresses import addresses  # only stacks that name a factory need its models
    from workflows.spec.pipelines.factory_spec import load_factory

    return addresses(load_factory(path))


def _test_files(spec: StackSpec, folder: Path) -> tuple[tuple[StackTestFile, ...], Mapping[str, bytes]]:
    """Return the files of ReFrame tests that a spec names, and their bytes by SHA-256."""
    content = {name: read_bounded(folder / name, _LARGEST_FILE, "correct reframe") for name in spec.reframe}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    tests = tuple(StackTestFile(path=name, sha256=sha256) for name, sha256 in digests.items())
    return tests, {sha256: content[name] for name, sha256 in digests.items()}


def _ordered(*files: Mapping[str, bytes]) -> tuple[bytes, ...]:
    by_digest = {sha256: data for group in files for sha256, data in group.items()}
    return tuple(by_digest[sha256] for sha256 in sorted(by_digest))


def cached_packages(folder: Path, root: str) -> frozenset[str]:
    """Return the hashes of the packages that a build cache holds for an install root; none if there is no such folder.

    An entry counts if its description is there, which is written last. Its bytes are checked when the package is taken
    (`steps.softwarestack.cache.build_cache` has the layout).
    """
    try:
        names = [path.name for path in (folder / stack_input.prefix_digest(root)).iterdir()]
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise LockError(f"{folder}: cannot be read: {error.strerror}", "make the cache readable for this user") from error
    return frozenset(match[1] for name in names if (match := _ENTRY.fullmatch(name)))


def cache_location(spec: StackSpec) -> BuildCacheLocation:
    """Return the build cache of a spec in the form that tasks get; without folder and registry it lies in the run store."""
    signing, registry = spec.package_signing, spec.cache_registry
    return BuildCacheLocation(
        folder=spec.cache or "" if registry is None else "",
        key=PACKAGE_KEY if signing.sign is not None else "",
        signers=signing.signers,
        registry=registry,
    )


def _require_settings(spec: StackSpec, lock: EasyBuildLock, path: Path) -> None:
    """Raise `LockError` if the lock was made with another release of EasyBuild, naming scheme or CPU target than the spec has."""
    assert spec.easybuild is not None
    if lock.syntax != spec.module_syntax:
        raise LockError(f"{path}: it was made for module_syntax {lock.syntax}, and the spec says {spec.module_syntax}", _AGAIN)
    wanted = (spec.easybuild.release, spec.easybuild.naming, " ".join(spec.cpu_targets))
    names = ("easybuild.release", "easybuild.naming", "targets" if spec.several_targets else "target")
    for locked, name, value in zip(lock.builder[:3], names, wanted, strict=True):
        if locked != value:
            raise LockError(f"{path}: it was made for {name} {locked}, and the spec says {value}", _AGAIN)


def _require_roots(section: EasyBuildSection, lock: EasyBuildLock, folder: Path, path: Path, target: str) -> None:
    """Raise `LockError` if the lock was made for other easyconfigs than the spec names now for a CPU target.

    They are compared by content, since a lock names their paths in robot folders.
    """
    members = (package for package in lock.packages if (package.target or lock.target) == target)
    hashes = frozenset(lock.roots)
    roots = {package.sha256: package.easyconfig for package in members if package.hash in hashes}
    named = dict[str, str]()
    for name in section.offered_for(target):
        data = read_bounded(folder / name, _LARGEST_FILE, "correct easybuild.easyconfigs")
        named[hashlib.sha256(data).hexdigest()] = name
    if missing := [name for sha256, name in named.items() if sha256 not in roots]:
        raise LockError(f"{path}: it was made without {missing[0]}, which the spec names", _AGAIN)
    if surplus := [name for sha256, name in roots.items() if sha256 not in named]:
        raise LockError(f"{path}: it was made for {surplus[0]}, which the spec does not name any more", _AGAIN)


def _input(spec: StackSpec, backend: str, release: str, packages: tuple[StackPackage, ...], roots: tuple[str, ...]) -> StackInput:
    stack = StackInput(
        name=spec.name,
        backend=backend,
        release=release,
        root=spec.publish.root,
        packages=packages,
        roots=roots,
        cache=cache_location(spec),
        syntax=spec.module_syntax,
        target="" if spec.several_targets else spec.cpu_targets[0],
        targets=spec.several_targets,
        builder=spec.builder,
        sources=spec.sources,
        tests=tuple(
            StackTestCase(
                name=name_for(test.name, target),
                command=test.command,
                modules=test.modules,
                timeout_seconds=max(1, int(test.timeout.total_seconds())),
                expect=test.expect,
                reference=_reference(test.reference),
                incident=test.incident,
                target=target,
            )
            for test in spec.tests
            for target in spec.several_targets or ("",)
            if not (target and test.targets) or target in test.targets
        ),
        limits=StackLimits(
            build_seconds=int(spec.limits.build.total_seconds()),
            load_seconds=int(spec.limits.load.total_seconds()),
            reframe_seconds=int(spec.limits.reframe.total_seconds()),
            tree_bytes=int((spec.publish.largest_gib or 0) * (1 << 30)),
        ),
    )
    stack = with_fields(stack, view=_view(spec, stack))
    if not spec.smoke_tests:
        return stack
    return with_fields(stack, tests=(*stack.tests, *smoke_tests.cases(stack, spec.skip_smoke_tests)))


def _view(spec: StackSpec, stack: StackInput) -> StackView | None:
    """Return the view of a stack by hashes. Raises `LockError` for a name that no installed package has."""
    if spec.view is None:
        return None
    hashes = {name: _viewed(name, stack) for name in (*spec.view.packages, *spec.view.order)}
    roots = tuple(package.hash for package in stack.installed if package.hash in set(stack.roots))
    named = tuple(dict.fromkeys(hash_ for name in spec.view.packages for hash_ in hashes[name]))
    order = tuple(dict.fromkeys(hash_ for name in spec.view.order for hash_ in hashes[name]))
    return StackView(packages=named or roots, order=order)


def _viewed(name: str, stack: StackInput) -> tuple[str, ...]:
    hashes = tuple(package.hash for package in stack.installed if name in (package.name, package.title))
    if not hashes:
        names = ", ".join(sorted({package.name for package in stack.installed})[:10])
        raise LockError(f"view names {name}, which is none of the installed packages", f"name packages such as {names}")
    return hashes


def _reference(figure: FigureReference | None) -> OutputReference | None:
    return None if figure is None else OutputReference(pattern=figure.pattern, least=figure.least, most=figure.most)


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
        target=package.target,
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
