"""Critical path and makespan of a set of builds: pure arithmetic over a graph and durations in seconds.

Builds start as soon as their dependencies are done and a slot is free, those with the longest path behind them first. Barriers by
tier (all builds of one depth end before the next depth begins) and one build after another are computed beside it, for
comparison.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from workflows.softwarestack.build_graph import BuildGraph


@dataclass(frozen=True)
class BuildSchedule:
    """The builds of a stack with their durations in seconds, by hash in an order in which dependencies come first.

    `needs` has, for each build, the builds that it waits for; packages that are there already are left out.
    """

    seconds: Mapping[str, float]
    needs: Mapping[str, tuple[str, ...]]

    @cached_property
    def remaining(self) -> dict[str, float]:
        """Seconds from the start of a build to the end of the last build that waits for it, by hash: the priority of a build."""
        longest_behind = dict.fromkeys(self.seconds, 0.0)
        for hash_ in reversed(tuple(self.seconds)):
            through = longest_behind[hash_] = longest_behind[hash_] + self.seconds[hash_]
            for needed in self.needs[hash_]:
                longest_behind[needed] = max(longest_behind[needed], through)
        return longest_behind

    @cached_property
    def depth(self) -> dict[str, int]:
        """Tier of each build: 1 for builds that wait for none, else one more than the deepest that they wait for."""
        depth = dict[str, int]()
        for hash_ in self.seconds:
            depth[hash_] = 1 + max((depth[needed] for needed in self.needs[hash_]), default=0)
        return depth

    @cached_property
    def by_priority(self) -> tuple[str, ...]:
        """Builds by descending critical path, the order in which ready builds start. A build never precedes one that it needs."""
        place = {hash_: number for number, hash_ in enumerate(self.seconds)}
        return tuple(sorted(self.seconds, key=lambda hash_: (-self.remaining[hash_], place[hash_])))

    @cached_property
    def _following(self) -> dict[str, list[str]]:
        following = {hash_: list[str]() for hash_ in self.seconds}
        for waiting, needed in self.needs.items():
            for hash_ in needed:
                following[hash_].append(waiting)
        return following

    @property
    def serial(self) -> float:
        """Seconds of all builds one after another."""
        return sum(self.seconds.values())

    @property
    def critical_path(self) -> float:
        """Seconds of the longest chain of builds: no number of slots makes the stack faster."""
        return max(self.remaining.values(), default=0.0)

    def longest_chain(self) -> tuple[str, ...]:
        """Return the builds of the longest chain, in their order."""
        chain = list[str]()
        candidates: Sequence[str] = [hash_ for hash_ in self.seconds if not self.needs[hash_]]
        while candidates:
            chain.append(max(candidates, key=self.remaining.__getitem__))
            candidates = self._following[chain[-1]]
        return tuple(chain)

    def bound(self, slots: int) -> float:
        """Return the seconds below which no order of builds can come with this number of slots."""
        return max(self.critical_path, self.serial / slots)

    def makespan(self, slots: int, order: Sequence[str] = ()) -> float:
        """Return the seconds until all builds are done, with at most `slots` of them at any time.

        `order` is that in which ready builds start, by default the order of their priority.
        """
        rank = {hash_: number for number, hash_ in enumerate(order or self.by_priority)}
        waits = {hash_: len(needed) for hash_, needed in self.needs.items()}
        following = self._following
        ready = [(rank[hash_], hash_) for hash_, count in waits.items() if not count]
        heapq.heapify(ready)
        running = list[tuple[float, str]]()
        clock = 0.0
        while ready or running:
            while ready and len(running) < slots:
                hash_ = heapq.heappop(ready)[1]
                heapq.heappush(running, (clock + self.seconds[hash_], hash_))
            clock, done = heapq.heappop(running)
            for hash_ in following[done]:
                waits[hash_] -= 1
                if not waits[hash_]:
                    heapq.heappush(ready, (rank[hash_], hash_))
        return clock

    def tier_barriers(self, slots: int) -> float:
        """Return the seconds until all builds are done if each tier waits for the whole tier before it."""
        tiers = dict[int, list[float]]()
        for hash_, depth in self.depth.items():
            tiers.setdefault(depth, []).append(self.seconds[hash_])
        return sum(_longest_first(durations, slots) for durations in tiers.values())


def schedule(graph: BuildGraph, builds: Iterable[str], seconds: Mapping[str, float]) -> BuildSchedule:
    """Return the schedule of some builds of a graph; `seconds` has a duration for each of them.

    A package that is not among the builds is installed from the cache, together with what it needs when it runs. So a build that
    needs it also waits for those of its runtime dependencies that are builds.
    """
    chosen = frozenset(builds)
    behind = dict[str, tuple[str, ...]]()
    needs = dict[str, tuple[str, ...]]()
    for hash_ in graph.order:
        node = graph.nodes[hash_]
        needed = dict.fromkeys(
            build
            for dependency in (node.dependencies if hash_ in chosen else node.runtime)
            for build in ((dependency,) if dependency in chosen else behind[dependency])
        )
        behind[hash_] = tuple(needed)
        if hash_ in chosen:
            needs[hash_] = behind[hash_]
    return BuildSchedule({hash_: seconds[hash_] for hash_ in needs}, needs)


def _longest_first(durations: list[float], slots: int) -> float:
    ends = [0.0] * min(slots, len(durations))
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)
