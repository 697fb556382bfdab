"""Choice of partners: matchings across leaves, and known-good partners of suspects. Repeatable, without random numbers."""

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from steps.localise.trials import IndexedFabric, Trial

_ODD = 0x9E3779B97F4A7C15
_FULL = (1 << 64) - 1


def scatter(*parts: int) -> int:
    """Return 64 bits that look random and depend on the numbers alone (SplitMix64, https://prng.di.unimi.it/splitmix64.c)."""
    state = 0
    for part in parts:
        state = (state + part + _ODD) & _FULL
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _FULL
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _FULL
        state ^= state >> 31
    return state


class Usage:
    """Partners and paths that tests of two nodes have used."""

    def __init__(self, fabric: IndexedFabric, shown: Iterable[Trial]) -> None:
        self.fabric = fabric
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.paths: Counter[tuple[int, int]] = Counter()
        self.leaves: Counter[tuple[int, int]] = Counter()
        # a test of all rails counts once in a round
        pairs = [(first, second) for (first, second), _ in {(trial.pair, trial.number) for trial in shown if trial.pair}]
        leaf = fabric.leaf
        self.pairs.update(pairs)
        self.paths.update([path for first, second in pairs if (path := fabric.path(first, second))])
        self.leaves.update([(first, leaf[second]) for first, second in pairs])
        self.leaves.update([(second, leaf[first]) for first, second in pairs])

    def add(self, first: int, second: int) -> None:
        """Count one more test of two nodes."""
        self.pairs[min(first, second), max(first, second)] += 1
        if path := self.fabric.path(first, second):
            self.paths[path] += 1
        self.leaves[first, self.fabric.leaf[second]] += 1
        self.leaves[second, self.fabric.leaf[first]] += 1

    def of_pair(self, first: int, second: int) -> int:
        """Return how often two nodes were tested together."""
        return self.pairs[min(first, second), max(first, second)]


class FreeNodes:
    """Nodes that have no partner yet, by leaf, and the leaves by their number of free nodes.

    Fabrics have thousands of leaves, so the leaves are kept in order and are never sorted anew for each pair.
    """

    def __init__(self, fabric: IndexedFabric, nodes: Iterable[int]) -> None:
        self.leaf = fabric.leaf
        self.of_leaf: dict[int, list[int]] = {}
        for node in nodes:
            self.of_leaf.setdefault(self.leaf[node], []).append(node)
        self._leaves: dict[int, list[int]] = {}
        for leaf in sorted(self.of_leaf):
            self._leaves.setdefault(len(self.of_leaf[leaf]), []).append(leaf)

    def pop(self) -> int | None:
        """Take the last node of the first leaf with most free nodes; None if no node is free."""
        if not self._leaves:
            return None
        leaf = self._leaves[max(self._leaves)][0]
        node = self.of_leaf[leaf].pop()
        self._shrunk(leaf)
        return node

    def remove(self, node: int) -> None:
        """Take a free node."""
        leaf = self.leaf[node]
        self.of_leaf[leaf].remove(node)
        self._shrunk(leaf)

    def _shrunk(self, leaf: int) -> None:
        count = len(self.of_leaf[leaf])
        crowded = self._leaves[count + 1]
        crowded.pop(bisect.bisect_left(crowded, leaf))
        if not crowded:
            del self._leaves[count + 1]
        if count:
            bisect.insort(self._leaves.setdefault(count, []), leaf)

    def ordered(self, leaf: int, usage_of: Callable[[int], int]) -> Iterator[int]:
        """Yield the leaves with free nodes: other ones before `leaf`, least used first, then most nodes, then the next number."""
        used: list[tuple[int, int, int, int]] = []
        for order, count in enumerate(sorted(self._leaves, reverse=True)):
            leaves = self._leaves[count]
            start = bisect.bisect_right(leaves, leaf)
            for place, other in enumerate(itertools.chain(leaves[start:], leaves[:start])):
                if other != leaf:
                    if times := usage_of(other):
                        used.append((times, order, place, other))
                    else:
                        yield other
        for *_, other in sorted(used):
            yield other
        if self.of_leaf.get(leaf):
            yield leaf


def matching(usage: Usage, nodes: Sequence[int], seed: int, allowed: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Return disjoint pairs of nodes, across leaves where possible, on the leaf pairs that were used least.

    The leaf with most free nodes goes first, because its nodes would otherwise be left to each other.
    """
    fabric = usage.fabric
    free = FreeNodes(fabric, sorted(nodes, key=lambda node: scatter(seed, node)))
    paths, pairs = Counter(usage.paths), list[tuple[int, int]]()
    while (node := free.pop()) is not None:
        mate = _mate(usage, node, free, paths, allowed)
        if mate is not None:
            free.remove(mate)
            pairs.append((min(node, mate), max(node, mate)))
            if path := fabric.path(node, mate):
                paths[path] += 1
    return sorted(pairs)


def _mate(
    usage: Usage, node: int, free: FreeNodes, paths: Counter[tuple[int, int]], allowed: Callable[[int, int], bool]
) -> int | None:
    """Return a free partner, on another leaf by the path that was used least if possible; None if none is allowed."""
    leaf = usage.fabric.leaf[node]
    times = paths.get
    for other in free.ordered(leaf, lambda other: times((leaf, other) if leaf < other else (other, leaf), 0)):
        best, least = None, math.inf
        for mate in free.of_leaf[other]:
            count = usage.of_pair(node, mate)
            if count < least and allowed(node, mate):
                best, least = mate, count
                if not count:
                    break
        if best is not None:
            return best
    return None
