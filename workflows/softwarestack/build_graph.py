"""The graph of a software stack: one node a package configuration, identified by its hash, and what each needs.

Lock readers make it; they read files from outside, so the graph checks itself when it is made.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Final

MOST_NODES: Final = 50_000
"""Largest number of packages in a lock; readers check it before they decode them. EESSI, a large public stack, has about 10,000."""
MOST_EDGES: Final = 2_000_000

_HASH = re.compile(r"[a-z0-9]{16,64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,99}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:/=~^-]{0,199}")


class LockError(ValueError):
    """A lock file that cannot be planned. The message has the file, the place and what is wrong; the exit code is 64."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class PackageNode:
    """One package configuration.

    `runtime` are hashes that the installed package needs when it runs (link and run dependencies), `build` those that only its
    build needs. An external comes with the operating system, and nothing builds it; `prefix` is its folder where the lock names it.
    `provides_mpi` is true for an MPI library that another package of the lock uses as such.
    """

    hash: str
    name: str
    version: str
    compiler: str
    target: str
    external: bool
    runtime: tuple[str, ...]
    build: tuple[str, ...]
    prefix: str = ""
    provides_mpi: bool = False

    @property
    def dependencies(self) -> tuple[str, ...]:
        """All hashes that must be installed before this package is built."""
        return (*self.runtime, *self.build)

    @property
    def title(self) -> str:
        """Name and version, for people, such as `hdf5@1.14.3`."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class BuildGraph:
    """All nodes of a lock by hash, and the hashes of its roots in the order of the lock.

    Making one raises `LockError` if a name, version or hash is unusable, a dependency or root is missing, or packages need each
    other in a circle. `source` names the lock in messages. `targets` are the CPU targets of a lock that has each package once for
    each of them.
    """

    source: str
    nodes: Mapping[str, PackageNode]
    roots: tuple[str, ...]
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for node in self.nodes.values():
            self._check(node)
        if edges := max(0, sum(len(node.dependencies) for node in self.nodes.values()) - MOST_EDGES):
            raise self._problem(f"it has {edges} dependencies more than {MOST_EDGES}")
        for root in self.roots:
            if root not in self.nodes:
                raise self._problem(f"root {root[:64]!r} is none of its packages")
        if not self.roots:
            raise self._problem("it has no roots")
        _ = self.order

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Every hash, each after all that it depends on."""
        try:
            return tuple(TopologicalSorter({hash_: node.dependencies for hash_, node in self.nodes.items()}).static_order())
        except CycleError as error:
            circle = [self.nodes[hash_].title for hash_ in error.args[1]]
            shown = " needs ".join(circle[:6]) + (" needs …" if len(circle) > 6 else "")
            raise self._problem(f"packages need each other in a circle: {shown}") from None

    def needed(self, cached: Iterable[str] = ()) -> frozenset[str]:
        """Return the hashes that a stack needs: roots, dependencies of builds, and runtime dependencies of what is cached."""
        available = frozenset(cached)
        needed = set(self.roots)
        waiting = list(self.roots)
        while waiting:
            node = self.nodes[waiting.pop()]
            if node.external:
                continue
            following = node.runtime if node.hash in available else node.dependencies
            fresh = [hash_ for hash_ in following if hash_ not in needed]
            needed.update(fresh)
            waiting += fresh
        return frozenset(needed)

    def _check(self, node: PackageNode) -> None:
        if not _HASH.fullmatch(node.hash):
            raise self._problem(f"{node.hash[:80]!r} is no package hash")
        if not _NAME.fullmatch(node.name):
            raise self._problem(f"package {node.hash} has the name {node.name[:120]!r}, which is none that a package can have")
        if not _VERSION.fullmatch(node.version) or ".." in node.version.split("/"):
            raise self._problem(
                f"package {node.name} has the version {node.version[:120]!r}, which is none that a package can have"
            )
        for hash_ in node.dependencies:
            if hash_ not in self.nodes:
                raise self._problem(f"package {node.title} needs {hash_[:64]!r}, which is none of its packages")
        if node.hash in node.dependencies:
            raise self._problem(f"package {node.title} needs itself")

    def _problem(self, problem: str) -> LockError:
        return LockError(f"{self.source}: {problem}", "make the lock again: it was cut off, edited by hand, or is no lock")
