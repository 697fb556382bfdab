"""Resolve a stack of Spack: its `spack.lock` and `spack.yaml`, as packages and files for the tasks."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from steps.softwarestack.contract import spack_layout
from steps.softwarestack.contract.stack_input import ModuleProvider, SpackFiles, StackPackage
from workflows.softwarestack import package_classes, spack_environment_file, spack_lock
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import BuildGraph, LockError, PackageNode
from workflows.softwarestack.spack_environment_file import SpackEnvironment
from workflows.softwarestack.spack_hierarchy import ModuleHierarchy
from workflows.softwarestack.stack_spec import SpackSettings, StackSpec

_AGAIN: Final = "`bringup stack lock` makes the lock again"
_TAG: Final = re.compile(r"v?(\d+\.\d+\.\d+)")


class _LockingSpack(msgspec.Struct, frozen=True):
    version: str = ""


class LockedWishes(msgspec.Struct, frozen=True, omit_defaults=True):
    """Digests of an environment that a lock remembers: of its recipes, and of its specs and settings; empty if unknown."""

    recipes: str = ""
    environment: str = ""


class _LockOrigin(msgspec.Struct, frozen=True):
    spack: _LockingSpack = _LockingSpack()
    bringup: LockedWishes = LockedWishes()


@dataclass(frozen=True, kw_only=True)
class ResolvedSpack:
    """A stack of Spack as its tasks get it: release, graph and packages of the lock, and files by SHA-256."""

    release: str
    graph: BuildGraph
    packages: tuple[StackPackage, ...]
    spack: SpackFiles
    files: Mapping[str, bytes]
    lock: bytes


def resolve(spec: StackSpec, section: SpackSettings, folder: Path) -> ResolvedSpack:
    """Return the lock and environment of a spec in a folder. Raises `LockError` for a lock or a file that cannot be used."""
    path = folder / spec.lock_path
    if not path.is_file():
        raise LockError(f"{path}: the lock of this stack is not there", "make it: `bringup stack lock`")
    content = read_bounded(path, spack_lock.LARGEST_BYTES, _AGAIN)
    graph = spack_lock.parse(content, str(path))
    release = _release(content, section, path)
    _require_target(spec, graph, path)
    environment = spack_environment_file.read(folder / section.environment)
    wishes = wishes_of(content)
    if wishes.recipes not in ("", environment.recipes_digest):
        raise LockError(f"{path}: recipes of its package repositories have changed since it was made", _AGAIN)
    if wishes.environment not in ("", environment.wishes_digest):
        raise LockError(f"{path}: specs or settings of {section.environment} have changed since it was made", _AGAIN)
    modules, providers = _modules(section, graph, environment)
    settings = msgspec.json.encode(environment.settings, order="sorted")
    files = {hashlib.sha256(data).hexdigest(): data for data in (content, settings, *environment.files)}
    return ResolvedSpack(
        release=release,
        graph=graph,
        packages=tuple(_package(graph.nodes[hash_], spec, modules) for hash_ in graph.order),
        spack=SpackFiles(
            lock=hashlib.sha256(content).hexdigest(),
            settings=hashlib.sha256(settings).hexdigest(),
            repositories=environment.repositories,
            recipes=environment.recipes,
            providers=providers,
        ),
        files=files,
        lock=content,
    )


def with_wishes(content: bytes, environment: SpackEnvironment) -> bytes:
    """Return a lock that remembers, in a section that Spack does not read, the environment that it was made from.

    A hash of Spack covers its recipe, but only Spack can compute it: a build from an edited recipe would get the old hash. Only
    Spack can say, too, whether a lock satisfies the specs of an environment.
    """
    head, brace, tail = content.rpartition(b"}")
    wishes = LockedWishes(recipes=environment.recipes_digest, environment=environment.wishes_digest)
    return b"".join((head.rstrip(), b', "bringup": ', msgspec.json.encode(wishes), brace, tail))


def wishes_of(content: bytes) -> LockedWishes:
    """Return the digests of the environment that a lock remembers; empty ones for locks that Spack made without bringup."""
    return msgspec.json.decode(content, type=_LockOrigin).bringup


def tagged_release(section: SpackSettings) -> str:
    """Return the release that a spec pins by a tag such as `v0.23.0`; empty if it pins a commit."""
    tag = _TAG.fullmatch(section.revision)
    return tag[1] if tag else ""


def _release(content: bytes, section: SpackSettings, path: Path) -> str:
    """Return the release of Spack that builds the lock. Raises `LockError` if lock and spec name different ones.

    Locks before Spack 0.20 do not name theirs.
    """
    locked, wanted = msgspec.json.decode(content, type=_LockOrigin).spack.version, tagged_release(section)
    if locked and wanted and locked != wanted:
        raise LockError(f"{path}: it was made by Spack {locked}, and the spec says {section.revision}", _AGAIN)
    return locked or wanted


def _require_target(spec: StackSpec, graph: BuildGraph, path: Path) -> None:
    targets = sorted({node.target for node in graph.nodes.values() if not node.external and node.target})
    if targets and spec.target not in targets:
        raise LockError(f"{path}: it was made for target {', '.join(targets[:3])}, and the spec says {spec.target}", _AGAIN)


def _modules(
    section: SpackSettings, graph: BuildGraph, environment: SpackEnvironment
) -> tuple[Mapping[str, str], tuple[ModuleProvider, ...]]:
    """Return the full names of modules by hash, as far as compiler and MPI decide them, and what makes others visible."""
    if section.naming != spack_layout.HIERARCHICAL:
        return {}, ()
    hierarchy = ModuleHierarchy(graph, section.core_compilers, environment.settings.get("compilers"))
    return hierarchy.modules, hierarchy.providers()


def _package(node: PackageNode, spec: StackSpec, modules: Mapping[str, str]) -> StackPackage:
    """Return a package as tasks get it; its CPU target only if that is another one than the stack's."""
    size = package_classes.shipped().of(node.name)
    return StackPackage(
        hash=node.hash,
        name=node.name,
        version=node.version,
        module="" if node.external else modules.get(node.hash) or spack_layout.module_name(node.name, node.version, node.hash),
        external=node.external,
        runtime=node.runtime,
        build=node.build,
        size_class="" if node.external else size.name,
        jobs=min(size.jobs, spec.jobs),
        memory_mib=0 if node.external else size.memory_gib << 10,
        target="" if node.external or node.target == spec.target else node.target,
    )
