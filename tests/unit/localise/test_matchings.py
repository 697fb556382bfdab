"""Matchings of free nodes against a plain search of all leaves and nodes, on fabrics, uses and closed pairs made from seeds."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from steps.localise.contract import FabricMap
from steps.localise.partners import Usage, matching, scatter
from steps.localise.trials import IndexedFabric

Allowed = Callable[[int, int], bool]


def plain(usage: Usage, nodes: list[int], seed: int, allowed: Allowed) -> list[tuple[int, int]]:
    """Return the matching by looking at every leaf and every node for each pair."""
    leaf, count = usage.fabric.leaf, len(usage.fabric.leaf_masks)
    free, paths, pairs = sorted(nodes, key=lambda node: scatter(seed, node)), Counter(usage.paths), list[tuple[int, int]]()
    while free:
        sizes = Counter(leaf[node] for node in free)
        own = max(sizes, key=lambda other: (sizes[other], -other))
        node = [other for other in free if leaf[other] == own][-1]
        free.remove(node)
        sizes[own] -= 1

        def cost(mate: int, node: int = node, own: int = own, sizes: Counter[int] = sizes) -> tuple[int, ...]:
            place = leaf[mate]
            used = paths[min(own, place), max(own, place)]
            return place == own, used, -sizes[place], (place - own) % count, usage.of_pair(node, mate), free.index(mate)

        mates = sorted((mate for mate in free if allowed(node, mate)), key=cost)
        if mates:
            free.remove(mates[0])
            pairs.append((min(node, mates[0]), max(node, mates[0])))
            if path := usage.fabric.path(node, mates[0]):
                paths[path] += 1
    return sorted(pairs)


@pytest.mark.parametrize("seed", range(24))
def test_matchings_take_the_least_used_paths_and_partners(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    size, leaves = chance.randint(2, 60), chance.choice((1, 2, 5, 20))
    names = tuple(f"gpu{node:02d}" for node in range(size))
    fabric = IndexedFabric(FabricMap(nodes=names, leaves=tuple(f"leaf{chance.randrange(leaves)}" for _ in names)))
    usage = Usage(fabric, ())
    for _ in range(chance.choice((0, size, 10 * size))):
        usage.add(*chance.sample(range(size), 2))
    closed = {tuple(sorted(chance.sample(range(size), 2))) for _ in range(chance.choice((0, size, 20 * size)))}
    nodes = sorted(chance.sample(range(size), chance.randint(1, size)))

    def is_open(first: int, second: int) -> bool:
        return (min(first, second), max(first, second)) not in closed

    assert matching(usage, nodes, seed, is_open) == plain(usage, nodes, seed, is_open)
