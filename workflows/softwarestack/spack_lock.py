"""Read `spack.lock` of Spack 0.18 and newer (lock file versions 4 to 7) into a graph of builds.

Versions 4 and 5 write the types of a dependency as `type` (before Spack 0.22) or as `parameters.deptypes`; since version 6
compilers are packages of their own. Source: lib/spack/spack/environment/environment.py of https://github.com/spack/spack.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from steps.contract.canonical import UNREADABLE_JSON
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import MOST_NODES, BuildGraph, LockError, PackageNode

VERSIONS: Final = (4, 5, 6, 7)
LARGEST_BYTES: Final = 256 << 20
"""Largest file that is read: a lock of 1,238 packages has 7 MB."""
_RUNTIME_TYPES: Final = {"link", "run"}
_BUILD_TYPES: Final = {"build"}
_MPI: Final = "mpi"
_LANGUAGES: Final = {"c", "cxx", "fortran"}
"""Virtual packages that a compiler provides, since lock file version 6."""


class _LockFileMeta(Struct, frozen=True):
    file_type: str = field(name="file-type", default="")
    lockfile_version: int = field(name="lockfile-version", default=0)


class _LockFile(Struct, frozen=True):
    meta: _LockFileMeta = field(name="_meta", default=_LockFileMeta())
    roots: msgspec.Raw = msgspec.Raw(b"[]")
    concrete_specs: msgspec.Raw = msgspec.Raw(b"{}")


class _DependencyParameters(Struct, frozen=True):
    deptypes: tuple[str, ...] = ()
    virtuals: tuple[str, ...] = ()


class _LockedDependency(Struct, frozen=True):
    hash: str
    name: str = ""
    type: tuple[str, ...] = ()
    parameters: _DependencyParameters = _DependencyParameters()


class _CpuTarget(Struct, frozen=True):
    name: str = ""


class _SpecArchitecture(Struct, frozen=True):
    platform_os: str | None = None
    target: _CpuTarget | str | None = None


class _CompilerSpec(Struct, frozen=True):
    name: str = ""
    version: str = ""


class _SpecExternal(Struct, frozen=True):
    path: str | None = None


class _ConcreteSpec(Struct, frozen=True):
    name: str
    version: str = ""
    arch: _SpecArchitecture | None = None
    compiler: _CompilerSpec | None = None
    external: msgspec.Raw = msgspec.Raw(b"null")
    dependencies: tuple[_LockedDependency, ...] = ()


_SPEC: Final = msgspec.json.Decoder(_ConcreteSpec)


class _LockRoot(Struct, frozen=True):
    hash: str


def read(path: Path) -> BuildGraph:
    """Return the graph of a lock file. Raises `LockError` if the file cannot be read, is no lock, or cannot be planned."""
    return parse(read_bounded(path, LARGEST_BYTES, "give the path of a spack.lock"), str(path))


def parse(content: bytes, source: str) -> BuildGraph:
    """Return the graph of a lock file's content; `source` names it in messages. Raises `LockError`."""
    hint = "give a file that `spack concretize` wrote"
    try:
        file = msgspec.json.decode(content, type=_LockFile)
        _check(file.meta, source, hint)
        roots = msgspec.json.decode(file.roots, type=tuple[_LockRoot, ...])
        # counted before they are decoded: a million small specs would take a gigabyte
        undecoded = msgspec.json.decode(file.concrete_specs, type=dict[str, msgspec.Raw])
        if len(undecoded) > MOST_NODES:
            raise LockError(f"{source}: it lists {len(undecoded)} packages, at most {MOST_NODES} are planned", hint)
        specs = {hash_: _SPEC.decode(spec) for hash_, spec in undecoded.items()}
    except UNREADABLE_JSON as error:
        raise LockError(f"{source}: it is no spack.lock: {error}", hint) from error
    except RecursionError as error:
        raise LockError(f"{source}: it is no spack.lock: it is nested too deeply", hint) from error
    mpi = {needed.hash for spec in specs.values() for needed in spec.dependencies if _MPI in needed.parameters.virtuals}
    nodes = {hash_: _node(hash_, spec, specs, provides_mpi=hash_ in mpi) for hash_, spec in specs.items()}
    return BuildGraph(source, nodes, tuple(dict.fromkeys(root.hash for root in roots)))


def _check(meta: _LockFileMeta, source: str, hint: str) -> None:
    if meta.file_type != "spack-lockfile":
        raise LockError(f"{source}: it is no spack.lock: _meta.file-type is {meta.file_type[:60]!r}", hint)
    if meta.lockfile_version not in VERSIONS:
        raise LockError(
            f"{source}: lockfile version {meta.lockfile_version} is not supported, versions {VERSIONS[0]} to {VERSIONS[-1]} are",
            "concretize again with Spack 0.18 or newer",
        )


def _node(hash_: str, spec: _ConcreteSpec, specs: Mapping[str, _ConcreteSpec], *, provides_mpi: bool) -> PackageNode:
    runtime, build = list[str](), list[str]()
    for dependency in spec.dependencies:
        types = {*dependency.type, *dependency.parameters.deptypes}
        if types & _RUNTIME_TYPES:
            runtime.append(dependency.hash)
        elif types & _BUILD_TYPES:  # dependencies of type test alone are installed only where tests are asked for
            build.append(dependency.hash)
    target = spec.arch.target if spec.arch else None
    is_external = bytes(spec.external) not in (b"null", b"{}")
    return PackageNode(
        hash=hash_,
        name=spec.name,
        version=spec.version,
        compiler=_compiler(spec, specs),
        target=target.name if isinstance(target, _CpuTarget) else target or "",
        external=is_external,
        prefix=_prefix(spec.external) if is_external else "",
        provides_mpi=provides_mpi,
        runtime=tuple(dict.fromkeys(runtime)),
        build=tuple(dict.fromkeys(build)),
    )


def _prefix(external: msgspec.Raw) -> str:
    """Return the folder of an external package; empty for one that only the site's modules bring."""
    try:
        return msgspec.json.decode(external, type=_SpecExternal).path or ""
    except UNREADABLE_JSON:
        return ""


def _compiler(spec: _ConcreteSpec, specs: Mapping[str, _ConcreteSpec]) -> str:
    """Return the compiler of a package, such as `gcc@13.2.0`; empty for a package that nothing compiles."""
    if spec.compiler is not None:
        return f"{spec.compiler.name}@{spec.compiler.version}"
    for dependency in spec.dependencies:
        if _LANGUAGES.intersection(dependency.parameters.virtuals) and (compiler := specs.get(dependency.hash)):
            return f"{compiler.name}@{compiler.version}"
    return ""
