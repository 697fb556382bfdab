"""Places of Spack's modules by compiler and MPI: the folder of each package's module, and the modules that make folders visible.

A compiler of which the stack has a package, and an MPI library of the stack, have modules of their own. For those of the site the
stack writes modules, since otherwise nothing would lead to the packages that they have built.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, Final

from steps.softwarestack.contract import spack_layout
from steps.softwarestack.contract.spack_layout import COMPILER, CORE, MPI
from steps.softwarestack.contract.stack_input import ModuleProvider
from workflows.softwarestack.build_graph import BuildGraph, LockError, PackageNode

_MPI_LIBRARIES: Final = frozenset(
    {
        *("cray-mpich", "cray-mvapich2", "fujitsu-mpi", "hpcx-mpi", "intel-mpi", "intel-oneapi-mpi", "mpi-serial", "mpich"),
        *("mpilander", "mpitrampoline", "mpt", "mvapich", "mvapich2", "mvapich2-gdr", "mvapich2x", "openmpi", "spectrum-mpi"),
    }
)
"""Packages of Spack that always provide `mpi`. Locks before Spack 0.21 do not say it of a dependency."""
_COMPILER_OF: Final = {
    "llvm": "clang",
    "llvm-amdgpu": "rocmcc",
    "intel-oneapi-compilers": "oneapi",
    "intel-oneapi-compilers-classic": "intel",
    "acfl": "arm",
}
"""Packages of compilers that Spack before 1.0 calls by another name (its `package_name_to_compiler_name`)."""
_SYSTEM: Final = ("/", "/usr", "/usr/local")
"""Prefixes whose programs are on every search path, which modules of Spack leave out too."""
_PLAIN: Final = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9+._-]*)+")
_FLAT: Final = "write spack.naming: flat, name both compilers in spack.core_compilers, or build both with one compiler"


@dataclass(frozen=True)
class ModuleHierarchy:
    """Hierarchy of the modules of a lock.

    `core` are the compilers, such as `gcc@12.2.0`, whose packages need no compiler module; empty: those that `_default_core` names.
    `compilers` is the section of that name in spack.yaml, which has the folders of the site's compilers.
    """

    graph: BuildGraph
    core: tuple[str, ...] = ()
    compilers: Any = None

    def folder(self, node: PackageNode) -> str:
        """Return the folder of a package's module, below the folder of all modules."""
        mpi = self._mpi[node.hash]
        return self._compiler_folder(node) if mpi is None else f"{_mpi_folder(mpi)}/{self._compiler_folder(node)}"

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """Full names of the modules of installed packages by their hashes."""
        return {node.hash: self._module(node) for node in self._installed}

    def _module(self, node: PackageNode) -> str:
        return spack_layout.module_name(node.name, node.version, node.hash, self.folder(node))

    def providers(self) -> tuple[ModuleProvider, ...]:
        """Return the modules that make folders visible, by name. Raises `LockError` if a module would be out of reach."""
        for node in self._installed:
            self._require_reach(node)
        providers = [*self._compiler_providers(), *self._mpi_providers()]
        return tuple(sorted(providers, key=lambda provider: provider.module))

    @cached_property
    def _installed(self) -> tuple[PackageNode, ...]:
        """Packages whose modules users see: roots and what they need when they run."""
        needed, waiting = set[str](), list(self.graph.roots)
        while waiting:
            if (hash_ := waiting.pop()) not in needed:
                needed.add(hash_)
                waiting += self.graph.nodes[hash_].runtime
        nodes = (self.graph.nodes[hash_] for hash_ in self.graph.order if hash_ in needed)
        return tuple(node for node in nodes if not node.external)

    @cached_property
    def _core(self) -> frozenset[str]:
        used = {node.compiler for node in self._installed if node.compiler}
        if unknown := sorted(set(self.core) - used):
            known = ", ".join(sorted(used)) or "none"
            raise LockError(
                f"{self.graph.source}: spack.core_compilers names {unknown[0]}, which builds none of its packages",
                f"name compilers of these: {known}",
            )
        return frozenset(self.core or _default_core(self.graph, self._installed, used))

    @cached_property
    def _mpi(self) -> Mapping[str, PackageNode | None]:
        """The MPI library that each installed package needs when it runs, by the package's hash; None for the library itself."""
        return {node.hash: None if _is_mpi(node) else self._nearest_mpi(node) for node in self._installed}

    def _nearest_mpi(self, node: PackageNode) -> PackageNode | None:
        waiting, seen = deque(node.runtime), set(node.runtime)
        while waiting:
            needed = self.graph.nodes[waiting.popleft()]
            if _is_mpi(needed):
                return needed
            fresh = [hash_ for hash_ in needed.runtime if hash_ not in seen]
            seen.update(fresh)
            waiting += fresh
        return None

    @cached_property
    def _compilers_by_hash(self) -> Mapping[str, str]:
        """The compiler by which each installed package is filed; without one, that of what it needs when it runs."""
        filed = dict[str, str]()
        for node in self._installed:  # in the order of needs
            needed = {filed.get(hash_, "") for hash_ in node.runtime} - {"", *self._core}
            filed[node.hash] = node.compiler or min(needed, default="")
        return filed

    def _compiler_folder(self, node: PackageNode) -> str:
        compiler = self._compilers_by_hash[node.hash]
        return CORE if not compiler or compiler in self._core else compiler.replace("@", "/")

    def _require_reach(self, node: PackageNode) -> None:
        """Raise `LockError` if the module of a package loads another one that its own compiler and MPI do not make visible."""
        own = self._compiler_folder(node)
        mpi = self._mpi[node.hash]
        visible = {CORE, own, self.folder(node), *([f"{_mpi_folder(mpi)}/{CORE}"] if mpi is not None else [])}
        for needed in (self.graph.nodes[hash_] for hash_ in node.runtime):
            if not needed.external and self.folder(needed) not in visible:
                raise self._out_of_reach(node, needed, "modules by compiler and MPI cannot load both")
        if mpi is not None and not mpi.external and self._compiler_folder(mpi) != own:
            # a module unlocks the same folders for everybody: one in Core would show packages of compilers that are not loaded
            raise self._out_of_reach(node, mpi, "an MPI library's module can show packages of its own compiler alone")

    def _out_of_reach(self, node: PackageNode, needed: PackageNode, why: str) -> LockError:
        compiler, other = (self._compilers_by_hash[package.hash] or "no compiler" for package in (node, needed))
        return LockError(
            f"{self.graph.source}: {node.title}, built with {compiler}, needs {needed.title}, built with {other}: {why}", _FLAT
        )

    def _compiler_providers(self) -> Iterator[ModuleProvider]:
        """Yield a module for each compiler that is not core: those of its packages, or one that the stack writes for the site's."""
        for compiler in sorted({self._compilers_by_hash[node.hash] for node in self._installed} - {"", *self._core}):
            folder, own = compiler.replace("@", "/"), [node for node in self._installed if _compiler_of(node) == compiler]
            for node in own:
                yield ModuleProvider(module=self._module(node), family=COMPILER, unlocks=(folder,))
            if not own:
                prefix = self._prefix(compiler)
                yield ModuleProvider(module=f"{CORE}/{folder}", family=COMPILER, unlocks=(folder,), site=True, prefix=prefix)

    def _mpi_providers(self) -> Iterator[ModuleProvider]:
        """Yield a module for each MPI library and compiler of its users: the library's own, or one for a library of the site."""
        users = {(mpi.hash, self._compiler_folder(node)) for node in self._installed if (mpi := self._mpi[node.hash]) is not None}
        for hash_, folder in sorted(users):
            mpi = self.graph.nodes[hash_]
            core = [f"{_mpi_folder(mpi)}/{CORE}"] if (hash_, CORE) in users and folder != CORE else []
            unlocks = (*core, f"{_mpi_folder(mpi)}/{folder}")  # the last one comes first in MODULEPATH
            if not mpi.external:
                yield ModuleProvider(module=self._module(mpi), family=MPI, unlocks=unlocks)
                continue
            name = spack_layout.module_name(mpi.name, mpi.version, mpi.hash, folder)
            yield ModuleProvider(module=name, family=MPI, unlocks=unlocks, site=True, prefix=_own_prefix(mpi.prefix))

    def _prefix(self, compiler: str) -> str:
        """Return the folder of a compiler of the site: of an external package, or by the paths in spack.yaml; empty if unknown."""
        for node in self.graph.nodes.values():
            if node.external and _compiler_of(node) == compiler:
                return _own_prefix(node.prefix)
        for entry in self.compilers if isinstance(self.compilers, list) else []:
            described = entry.get("compiler") if isinstance(entry, dict) else None
            if isinstance(described, dict) and str(described.get("spec", "")).replace("@=", "@") == compiler:
                paths = described.get("paths")
                program = paths.get("cc") or paths.get("fc") if isinstance(paths, dict) else None
                return _own_prefix(str(PurePosixPath(program).parent.parent)) if isinstance(program, str) else ""
        return ""


def _default_core(graph: BuildGraph, installed: Iterable[PackageNode], used: Iterable[str]) -> Iterable[str]:
    """Return the compilers that are core if the spec names none: the only one, or those whose packages other compilers need.

    Locks seldom keep compilers apart: what a system's compiler has built is used by all, and it builds the other compilers.
    """
    compilers, core = set(used), set[str]()
    if len(compilers) == 1:
        return compilers
    for node in installed:
        core |= {graph.nodes[hash_].compiler for hash_ in node.runtime if not graph.nodes[hash_].external} - {node.compiler}
        core |= {node.compiler} if _compiler_of(node) in compilers - {node.compiler} else set()
    return core - {""}


def _compiler_of(node: PackageNode) -> str:
    """Return the compiler that a package would be, such as `clang@17.0.6` for llvm; no other package has that name."""
    return f"{_COMPILER_OF.get(node.name, node.name)}@{node.version}"


def _is_mpi(node: PackageNode) -> bool:
    return node.provides_mpi or node.name in _MPI_LIBRARIES


def _mpi_folder(mpi: PackageNode) -> str:
    return f"{mpi.name}/{spack_layout.hashed(mpi.version, mpi.hash)}"


def _own_prefix(path: str) -> str:
    """Return a prefix without those whose programs every user finds. Raises `LockError` for one that a module cannot name."""
    prefix = path.rstrip("/")
    if prefix in ("", *_SYSTEM):
        return ""
    if not _PLAIN.fullmatch(prefix):
        raise LockError(
            f"{prefix[:100]!r} is the folder of a compiler or MPI library, with odd characters", "move it, or link to it"
        )
    return prefix
