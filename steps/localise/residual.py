"""Search for a fault that only groups show: a pair among all pairs, a path, a size, or a node that passed by chance.

Each hypothesis is one more fault in the nodes that seem good. Groups of nodes halve the hypotheses: a group fails if both nodes of
the pair are in it. Candidates are then tested directly, because a direct test needs no assumption about other faults.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from msgspec import Struct

from steps.localise import propagation
from steps.localise.fabric_belief import NODE, PAIR, PAIR_FAULTS, PATH, SCALE_FAULTS, Beliefs, Variable
from steps.localise.trials import Trial, members

BEAM = 3000
"""Most sets of pairs kept while hypotheses are halved."""
SURE = 0.9
"""Groups alone never make a hypothesis more probable than this: they assume that there is a single fault."""
LEAST_SHARE = 1e-4
"""Share of the weight of all hypotheses up to which a path without tests of its own is left out, but for the sum of weights."""
SCALE: Variable = (9,)
"""Variable of a fault that depends on the number of nodes alone."""


class Known(Struct, frozen=True, kw_only=True):
    """Parts that are not searched any more: masks of nodes that are set aside, pairs, paths, and the size that fails."""

    aside: int = 0
    pairs: frozenset[tuple[int, ...]] = frozenset()
    paths: frozenset[tuple[int, ...]] = frozenset()
    at_least: int = 0


class Block(NamedTuple):
    """Pairs of one node of `left` and one of `right` (of two nodes of `left` if they are equal) that groups treated alike.

    If the masks differ, they have no node in common. `pairs` is the number of pairs. A search has thousands of blocks.
    """

    left: int
    right: int
    score: float
    pairs: int


class Hypothesis(Struct, frozen=True, kw_only=True):
    """A possible fault: its log odds from groups and expectations, and the log likelihood ratio of direct tests.

    Scale faults have `above` and `upto`: the size that passes and the size that fails.
    """

    variable: Variable
    odds: float
    direct: float = 0.0
    above: int = 0
    upto: int = 0

    @property
    def is_narrow(self) -> bool:
        """Return True if the size from which tests fail is known closely enough."""
        return self.upto - self.above <= max(1, self.upto // 8)

    def share(self, size: int) -> float:
        """Return the share of the interval of sizes from which tests of `size` nodes would fail."""
        inner = min(max(size, self.above), self.upto)
        return math.log(inner / self.above) / math.log(self.upto / self.above)

    @property
    def level(self) -> float:
        """Return the log of the weight against the hypothesis of no fault; direct tests may lower it."""
        return self.odds + min(self.direct, 0.0)


class PathLevels:
    """Levels of all paths between leaves. A fabric of 10,000 nodes has a million, most without tests of their own.

    Those differ by the groups that touch both of their leaves alone. Rows hold the paths of one leaf with each leaf before it.
    """

    def __init__(self, beliefs: Beliefs, known: Known, groups: Sequence[Trial], scores: Sequence[float]) -> None:
        leaves = beliefs.fabric.leaf_masks if "path" in beliefs.policy.kinds else []
        # bit sets of groups: which of them touch a leaf
        self.touched = [sum([1 << place for place, trial in enumerate(groups) if trial.mask & leaf]) for leaf in leaves]
        self.scores, self.prior = scores, beliefs.prior((PATH, 0, 1)) if len(leaves) > 1 else 0.0
        self.odds = cache(self._odds)
        self.tested: dict[tuple[int, int], Hypothesis] = {}
        self._levels: dict[int, list[tuple[int, float]]] = {}
        for first, second in beliefs.tested_paths if leaves else ():
            if (first, second) not in known.paths:
                part = self._hypothesis(first, second, beliefs.ratio((PATH, first, second)))
                self.tested[first, second] = part
                self._levels.setdefault(second, []).append((first, part.level))
        for first, second in known.paths if leaves else ():
            self._levels.setdefault(second, []).append((first, -math.inf))
        self.highest = max([max(row, default=-math.inf) for row in self._rows(self.odds, lambda level: level)], default=-math.inf)

    def _odds(self, bits: int) -> float:
        """Return the log odds of a path that these groups touch."""
        return self.prior + sum([self.scores[place] for place in members(bits)])

    def _hypothesis(self, first: int, second: int, direct: float = 0.0) -> Hypothesis:
        return Hypothesis(variable=(PATH, first, second), odds=self.odds(self.touched[first] & self.touched[second]), direct=direct)

    def _rows(self, of_bits: Callable[[int], float], of_level: Callable[[float], float]) -> Iterator[list[float]]:
        """Yield for each leaf a value of each of its paths, from the groups or from the level of a path that is tested or known."""
        whole: dict[int, list[float]] = {}
        for second, bits in enumerate(self.touched):
            if bits not in whole:
                whole[bits] = [of_bits(other & bits) for other in self.touched]
            row = whole[bits][:second]
            for first, level in self._levels.get(second, ()):
                row[first] = of_level(level)
            yield row

    def masses(self, shift: float) -> Iterator[list[float]]:
        """Yield the weights of the paths of each leaf, in the units of `Residual`; those of known paths are zero."""
        return self._rows(cache(lambda bits: math.exp(self.odds(bits) - shift)), lambda level: math.exp(level - shift))

    def chosen(self, shift: float, least: float) -> list[Hypothesis]:
        """Return the paths with tests of their own, and those of more weight than `least`, by their higher leaf first."""
        paths = set(self.tested)
        if math.exp(self.highest - shift) > least:
            rows = enumerate(self.masses(shift))
            paths |= {(first, second) for second, row in rows for first, mass in enumerate(row) if mass > least}
        order = sorted(paths, key=lambda path: (path[1], path[0]))
        return [self.tested.get(path) or self._hypothesis(*path) for path in order]


class Residual:
    """Probabilities of one more fault among the nodes that are not set aside, given the groups that no known part explains."""

    def __init__(self, beliefs: Beliefs, shown: Sequence[Trial], known: Known) -> None:
        self.beliefs, self.fabric, self.known = beliefs, beliefs.fabric, known
        self.groups = [trial for trial in shown if trial.kind == "group" and not self.explains(trial.mask)]
        # rounded, so that a new round does not change what earlier ones halved
        self.scores = [round(beliefs.weight(trial) * 4) / 4 for trial in self.groups]
        self.covers = self._covers()
        self.blocks = self._blocks() if "pair" in beliefs.policy.kinds else []
        pairs, nodes, scales = [*self._single_pairs()], [*self._nodes()], [*self._scales()]
        paths = PathLevels(beliefs, known, self.groups, self.scores)
        levels = [[part.level for part in parts] for parts in (pairs, nodes, scales)]
        # weights are relative to the heaviest, because exponentials of long histories overflow
        self.shift = max([0.0, paths.highest, *[block.score for block in self.blocks], *itertools.chain(*levels)])
        self.none = math.exp(-self.shift)
        self.sets = [(block, math.exp(block.score - self.shift)) for block in self.blocks if block.pairs > 1]
        of_pairs, of_nodes, of_scales = [[math.exp(level - self.shift) for level in row] for row in levels]
        masses = itertools.chain(of_pairs, of_nodes, itertools.chain.from_iterable(paths.masses(self.shift)), of_scales)
        self.total = sum([mass * block.pairs for block, mass in self.sets]) + sum(masses)
        chosen = paths.chosen(self.shift, (self.none + self.total) * LEAST_SHARE)
        self.others = [*nodes, *chosen, *scales]
        self.hypotheses = [*pairs, *self.others]
        self.masses = [*of_pairs, *of_nodes, *[self.mass(part) for part in chosen], *of_scales]

    @property
    def remaining(self) -> float:
        """Return the probability that there is one more fault."""
        return self.total / (self.none + self.total)

    def mass(self, hypothesis: Hypothesis) -> float:
        """Return the weight of a hypothesis in the units of `total` and `none`; `masses` has those of all `hypotheses`."""
        return math.exp(hypothesis.level - self.shift)

    def probability(self, hypothesis: Hypothesis) -> float:
        """Return the probability of a hypothesis from groups alone."""
        mass = math.exp(min(hypothesis.odds - self.shift, propagation.FURTHEST))
        return mass / (self.none + self.total - self.mass(hypothesis) + mass)

    def odds(self, hypothesis: Hypothesis) -> float:
        """Return the log odds of a hypothesis from groups and direct tests."""
        if hypothesis.variable == SCALE:
            return propagation.log_odds(self.probability(hypothesis))
        return propagation.log_odds(min(self.probability(hypothesis), SURE)) + hypothesis.direct

    def explains(self, mask: int) -> bool:
        """Return True if known parts make a test of these nodes fail."""
        known, leaves = self.known, self.fabric.leaf_masks
        return bool(
            mask & known.aside
            or (known.at_least and mask.bit_count() >= known.at_least)
            or any(mask >> first & 1 and mask >> second & 1 for first, second in known.pairs)
            or any(mask & leaves[first] and mask & leaves[second] for first, second in known.paths)
        )

    def _covers(self) -> list[int]:
        """Return sets of nodes without a known fault: all, or without the one and the other side of each known pair and path."""
        whole = self.fabric.everyone & ~self.known.aside
        sides = [(1 << first, 1 << second) for first, second in sorted(self.known.pairs)]
        leaves = self.fabric.leaf_masks
        sides += [(leaves[first], leaves[second]) for first, second in sorted(self.known.paths)]
        if not sides:
            return [whole]
        # the larger sides stay in the first set, so that it leaves as little as possible to the second
        ordered = [sorted(pair, key=lambda side: (side & whole).bit_count()) for pair in sides]
        first, second = whole, whole
        for small, large in ordered:
            first, second = first & ~small, second & ~large
        return [first, second]

    def _blocks(self) -> list[Block]:
        size = self.fabric.size
        prior = math.log(PAIR_FAULTS / max(size * (size - 1) / 2, 1))
        first, *rest = self.covers
        sides = [(first, first)]
        for second in rest:
            fresh, common = second & ~first, second & first
            sides += [(fresh, fresh), (fresh, common)]
        blocks = [Block(left, right, prior, count) for left, right in sides if (count := _pairs(left, right))]
        groups = tuple((trial.mask, score) for trial, score in zip(self.groups, self.scores, strict=True))
        return list(_halved(tuple(blocks), groups))

    def _single_pairs(self) -> Iterator[Hypothesis]:
        """Yield the pairs that groups tell from all others, unless their own tests clear them."""
        direct, cleared = self.beliefs.own.get, self.beliefs.limits.cleared
        for left, right, score, count in self.blocks:
            if count == 1:
                # two masks of one node each, or one mask of two nodes
                both = left | right
                nodes = (both & -both).bit_length() - 1, both.bit_length() - 1
                ratio = direct(nodes, 0.0)
                if ratio > cleared:
                    yield Hypothesis(variable=(PAIR, *nodes), odds=score, direct=ratio)

    def _nodes(self) -> Iterator[Hypothesis]:
        beliefs, fields = self.beliefs, [0.0] * self.fabric.size
        for trial, score in zip(self.groups, self.scores, strict=True):
            for node in trial.nodes:
                fields[node] += score
        for node, field in enumerate(fields):
            if not self.known.aside >> node & 1:
                variable = (NODE, node)
                yield Hypothesis(variable=variable, odds=beliefs.prior(variable) + field, direct=beliefs.ratio(variable))

    def _scales(self) -> Iterator[Hypothesis]:
        if "scale" not in self.beliefs.policy.kinds or self.known.at_least:
            return
        # each group size that was tested bounds an interval of sizes; the whole fabric's is always there
        tested = {self.covers[0].bit_count(), *(trial.mask.bit_count() for trial in self.groups)}
        sizes = [2, *sorted(size for size in tested if size > 2)]
        whole = math.log(max(sizes[-1], 3) / 2)
        for above, upto in itertools.pairwise(sizes):
            prior = math.log(SCALE_FAULTS * math.log(upto / above) / whole)
            large = [trial.mask.bit_count() >= upto for trial in self.groups]
            field = sum(score for score, covered in zip(self.scores, large, strict=True) if covered)
            yield Hypothesis(variable=SCALE, odds=prior + field, above=above, upto=upto)


@lru_cache(maxsize=512)
def _halved(blocks: tuple[Block, ...], groups: tuple[tuple[int, float], ...]) -> tuple[Block, ...]:
    """Return the most probable pairs after the outcomes of groups, each with its score. Earlier results are kept."""
    if not groups:
        return blocks
    *before, (mask, score) = groups
    halves = _split(_halved(blocks, tuple(before)), mask, score)
    if len(halves) > BEAM:
        halves = sorted(halves, key=lambda block: (-block.score, block.left, block.right))[:BEAM]
    return tuple(halves)


def _split(blocks: Sequence[Block], mask: int, score: float) -> list[Block]:
    """Return the pairs within a group, with its score added, and the others."""
    parts: list[Block] = []
    for block in blocks:
        left, right, level, count = block
        inner, near = left & mask, right & mask
        if inner == left and near == right:
            parts.append(Block(left, right, level + score, count))
        elif (not inner and (not near or near == right)) or (inner == left and not near):
            parts.append(block)
        else:
            outer, far = left & ~mask, right & ~mask
            sides = [(inner, near, level + score), (inner, far, level), (outer, far, level)]
            if left != right:
                sides.append((outer, near, level))
            parts += [Block(first, second, total, pairs) for first, second, total in sides if (pairs := _pairs(first, second))]
    return parts


def _pairs(left: int, right: int) -> int:
    """Return the number of pairs of a node of each mask, or of two nodes of one mask."""
    count = left.bit_count()
    return count * (count - 1) // 2 if left == right else count * right.bit_count()
