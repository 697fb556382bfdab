"""The plan of a stack: which packages of a lock are built, which come from the cache, and how long that takes.

Pure: the same lock, cache contents and durations give the same plan.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from workflows.softwarestack import package_classes
from workflows.softwarestack.build_graph import BuildGraph, PackageNode
from workflows.softwarestack.build_schedule import BuildSchedule, schedule
from workflows.softwarestack.package_classes import PackageClass

POD_SECONDS: Final = 6.0
"""Time that a pod adds to each build: installing cached dependencies and pushing the result (5 to 6 s with Spack 0.23)."""


@dataclass(frozen=True, slots=True)
class PlannedBuild:
    """One build of the plan: package, resources, and duration in seconds, which is measured or estimated from its size class."""

    node: PackageNode
    size: PackageClass
    seconds: float
    measured: bool


@dataclass(frozen=True)
class StackPlan:
    """Builds by hash, and hashes of the packages that are not built, by reason.

    `cached` are needed and taken from the build cache, `unneeded` are build dependencies of cached packages alone.
    """

    graph: BuildGraph
    builds: Mapping[str, PlannedBuild]
    externals: tuple[str, ...]
    cached: tuple[str, ...]
    unneeded: tuple[str, ...]

    @cached_property
    def schedule(self) -> BuildSchedule:
        """The order of the builds, with the time of a pod added to each."""
        return schedule(self.graph, self.builds, {hash_: build.seconds + POD_SECONDS for hash_, build in self.builds.items()})

    @cached_property
    def ordered(self) -> tuple[PlannedBuild, ...]:
        """Builds in the order in which they start: by descending critical path."""
        return tuple(self.builds[hash_] for hash_ in self.schedule.by_priority)


def plan(graph: BuildGraph, cached: Iterable[str] = (), measured: Mapping[str, float] | None = None) -> StackPlan:
    """Return the plan of a lock.

    `cached` are hashes in the build cache. `measured` has seconds of earlier builds by hash or by package name; a hash wins.
    """
    available = frozenset(cached)
    needed = graph.needed(available)
    known, classes = measured or {}, package_classes.shipped()
    builds = dict[str, PlannedBuild]()
    rest = {"external": list[str](), "cached": list[str](), "unneeded": list[str]()}
    for hash_ in graph.order:
        node = graph.nodes[hash_]
        if node.external:
            rest["external"].append(hash_)
        elif hash_ not in needed:
            rest["unneeded"].append(hash_)
        elif hash_ in available:
            rest["cached"].append(hash_)
        else:
            size = classes.of(node.name.lower())  # EasyBuild writes HDF5
            seconds = known.get(hash_, known.get(node.name))
            builds[hash_] = PlannedBuild(node, size, size.seconds if seconds is None else seconds, seconds is not None)
    return StackPlan(graph, builds, tuple(rest["external"]), tuple(rest["cached"]), tuple(rest["unneeded"]))
