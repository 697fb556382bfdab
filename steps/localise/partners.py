"""Choice of partners: matchings across leaves, and known-good partners of suspects. Repeatable, without random numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

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


def matching(usage: Usage, nodes: Sequence[int], seed: int, allowed: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Return disjoint pairs of nodes, across leaves where possible, on the leaf pairs that were used least.

    The leaf with most free nodes goes first, because its nodes would otherwise be left to each other.
    """
    fabric = usage.fabric
    free: dict[int, list[int]] = {}
    for node in sorted(nodes, key=lambda node: scatter(seed, node)):
        free.setdefault(fabric.leaf[node], []).append(node)
    paths, pairs = Counter(usage.paths), list[tuple[int, int]]()
    while free:
        leaf = max(free, key=lambda leaf: (len(free[leaf]), -leaf))
        node = free[leaf].pop()
        mate = _mate(usage, node, free, paths, allowed)
        if mate is not None:
            free[fabric.leaf[mate]].remove(mate)
            pairs.append((min(node, mate), max(node, mate)))
            if path := fabric.path(node, mate):
                paths[path] += 1
        free = {leaf: rest for leaf, rest in free.items() if rest}
    return sorted(pairs)


def _mate(
    usage: Usage, node: int, free: dict[int, list[int]], paths: Counter[tuple[int, int]], allowed: Callable[[int, int], bool]
) -> int | None:
    """Return a free partner, on another leaf by the path that was used least if possible; None if none is allowed."""
    leaf = usage.fabric.leaf[node]
    costs = sorted(
        (other == leaf, paths[min(leaf, other), max(leaf, other)], -len(rest), (other - leaf) % len(usage.fabric.leaf_masks), other)
        for other, rest in free.items()
        if rest
    )
    for cost in costs:
        mates = [mate for mate in free[cost[-1]] if allowed(node, mate)]
        if mates:
            return min(mates, key=lambda mate: usage.of_pair(node, mate))
    return None
