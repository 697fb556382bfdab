"""Exact beliefs for small fabrics: probabilities of whole sets of faults, given every test.

With few partners, beliefs about single parts mislead: a node with two partners looks like two bad pairs, and eight failing rail
tests of one node look like noise of its leaf. So the sets of faults themselves are compared: the most probable set, and every set
that differs from it by few parts.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from msgspec import Struct

from steps.localise.contract import FabricMap, Policy
from steps.localise.fabric_belief import (
    EXACT,
    MOST_NOISE,
    NODE,
    PAIR,
    PAIR_FAULTS,
    PATH,
    PATH_FAULTS,
    RAIL,
    RAIL_FAULTS,
    SCALE_FAULTS,
    TESTS_OF_PRIOR,
    Variable,
)
from steps.localise.propagation import weight
from steps.localise.residual import SCALE
from steps.localise.trials import IndexedFabric, Trial

SHARED_NODE = math.log(1e-4)
"""Two bad pairs or paths at one node or leaf are far less probable than a bad node, which looks like many bad pairs."""
SECOND_EDGE = math.log(1e-2)
"""A second bad pair or path among so few nodes is rarer than a second bad node, of which it may be the shadow."""
CLOSEST = 16
"""Parts that are tried two at a time in place of one part of the most probable set."""
MOST_KEPT = 200_000
"""Most sets kept with their expectation, which does not change from round to round."""
MOST_EXCHANGED = 4
"""In sets of more parts, only one is replaced by two others at a time."""
IMPROVEMENTS = 30
"""Steps after which the search for the most probable set ends."""
INTERMITTENT = 0.05
"""Parts that fail now and then for each one that always fails."""
SOMETIMES, OFTEN = 0.3, 0.6
"""Shares of its tests that an intermittent part fails. Rare failures are looked for once a part has failed twice."""
States = dict[tuple[int, ...], float]


class FaultyPart(Struct, frozen=True, kw_only=True):
    """A part that may be bad, in one way of being bad: `rails` has the bit of each rail whose own test fails.

    `whole` is true if tests over all rails at once fail too. `least` is the size of groups that fail for faults of scale.
    `share` is the probability that a test which uses the part fails: 1 for lasting faults.
    """

    variable: Variable
    prior: float
    rails: int = 0
    whole: bool = True
    least: int = 0
    share: float = 1.0


class PartCatalog:
    """The parts of a small fabric that may be bad. Two nodes are one pair: no test tells which of them is bad."""

    def __init__(self, fabric: IndexedFabric, policy: Policy, silent: frozenset[int]) -> None:
        self.fabric, self.kinds = fabric, frozenset(policy.kinds)
        self.nodes = [node for node in range(fabric.size) if node not in silent]
        self.leaves = [fabric.leaf_masks[leaf] & sum(1 << node for node in self.nodes) for leaf in range(len(fabric.leaf_masks))]
        self.rails = fabric.rails if fabric.rails > 1 and "rail" in self.kinds else 0
        self.every_rail = (1 << self.rails) - 1
        self.share = min(policy.expected / fabric.size, 0.25)
        self.parts = [*self._two()] if len(self.nodes) == 2 and "pair" in self.kinds else [*self._all()]
        self.lasting = len(self.parts)
        self.parts += [*self._intermittent()]
        self.single = {leaf: mask.bit_length() - 1 for leaf, mask in enumerate(self.leaves) if mask.bit_count() == 1}
        self._priors: dict[tuple[int, ...], float] = {}
        self._outcomes: dict[tuple[str, int], dict[int, int]] = {}

    def outcomes(self, kind: str, mask: int) -> dict[int, int]:
        """Return the parts, by index, that make a test fail: with 1, or with the bits of the rails whose tests fail."""
        known = self._outcomes.get((kind, mask))
        if known is None:
            touched = self._showing[kind == "rail"]
            known = {index: code for index, first, second, code in touched if mask & first and mask & second}
            if kind == "group":
                size = mask.bit_count()
                known |= {index: 1 for index, part in enumerate(self.parts) if 0 < part.least <= size}
            self._outcomes[kind, mask] = known
        return known

    @cached_property
    def _showing(self) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int, int]]]:
        """Return the parts that show in tests over all rails, and in tests of rails: index, masks of both ends, and outcome."""
        every = [(index, *self._ends(part.variable), part) for index, part in enumerate(self.parts) if not part.least]
        whole = [(index, first, second, 1) for index, first, second, part in every if part.whole]
        return whole, [(index, first, second, part.rails) for index, first, second, part in every if part.rails]

    def _ends(self, variable: Variable) -> tuple[int, int]:
        """Return two masks of which a test has nodes of both if it uses a part."""
        kind, *rest = variable
        if kind == PATH:
            return self.leaves[rest[0]], self.leaves[rest[1]]
        return 1 << rest[0], 1 << (rest[1] if kind == PAIR else rest[0])

    def _ways(self, variable: Variable, share: float) -> Iterator[FaultyPart]:
        """Yield a part whose rails fail one by one as well, and one whose rails only fail together."""
        prior = math.log(share / 2)
        yield FaultyPart(variable=variable, prior=prior, rails=self.every_rail)
        if self.rails:
            yield FaultyPart(variable=variable, prior=prior)

    def _two(self) -> Iterator[FaultyPart]:
        pair = (PAIR, *self.nodes)
        yield from self._ways(pair, 0.25)
        for rail in range(self.rails):
            for whole in (True, False):
                yield FaultyPart(variable=pair, prior=math.log(RAIL_FAULTS / 2 / self.rails), rails=1 << rail, whole=whole)

    def _all(self) -> Iterator[FaultyPart]:
        size = len(self.nodes)
        for node in self.nodes if "node" in self.kinds else ():
            yield from self._ways((NODE, node), self.share)
        for node, rail in itertools.product(self.nodes, range(self.rails)):
            for whole in (True, False):
                prior = math.log(RAIL_FAULTS / (2 * size * self.rails))
                yield FaultyPart(variable=(RAIL, node, rail), prior=prior, rails=1 << rail, whole=whole)
        for pair in itertools.combinations(self.nodes, 2) if "pair" in self.kinds else ():
            yield from self._ways((PAIR, *pair), PAIR_FAULTS / (size * (size - 1) / 2))
        filled = [leaf for leaf, mask in enumerate(self.leaves) if mask]
        paths = [*itertools.combinations(filled, 2)] if "path" in self.kinds else []
        for path in paths:
            yield from self._ways((PATH, *path), min(PATH_FAULTS / len(paths), 0.1))
        for least in range(3, size + 1) if "scale" in self.kinds else ():
            yield FaultyPart(variable=SCALE, prior=math.log(SCALE_FAULTS / (size - 2)), least=least)

    def _intermittent(self) -> Iterator[FaultyPart]:
        """Yield each node, rail, pair and path as one that fails a share of its tests, which looks like noise at first."""
        whole = {part.variable: part for part in reversed(self.parts) if not part.least}
        for variable, part in sorted(whole.items()):
            rails = part.rails if variable[0] == RAIL else self.every_rail
            for share in (SOMETIMES, OFTEN):
                prior = part.prior + math.log(INTERMITTENT)
                yield FaultyPart(variable=variable, prior=prior, rails=rails, share=share)

    def is_path(self, ends: Sequence[int], covered: int) -> bool:
        """Return True if tests can tell a path from its nodes, when those of the mask `covered` show nothing.

        A path between two single nodes is their pair. A path to a single node that has no other way to good nodes is that node.
        """
        left = [mask & ~covered for mask in self.leaves]
        sizes = sorted(left[leaf].bit_count() for leaf in ends)
        if not sizes[0]:
            return False
        if sizes == [1, 1] and "pair" in self.kinds:
            return False
        return sizes[0] > 1 or "node" not in self.kinds or sum(bool(mask) for mask in left) > 2

    def prior(self, state: tuple[int, ...]) -> float:
        """Return the log of the expectation of a set of faults before any test; minus infinity if no test could show all of it."""
        if state not in self._priors:
            if len(self._priors) > MOST_KEPT:
                self._priors.clear()
            self._priors[state] = self._expected(state) if self._is_possible(state) else -math.inf
        return self._priors[state]

    def _expected(self, state: Iterable[int]) -> float:
        score, rails, edges = 0.0, set[int](), set[int]()
        for index in state:
            part = self.parts[index]
            kind, *rest = part.variable
            score += part.prior
            if kind == RAIL:
                # a second bad rail of one node is as likely as not, such as two ports of one card
                score += -part.prior + math.log(0.5 / self.rails) if rest[0] in rails else 0.0
                rails.add(rest[0])
            elif kind == PAIR:
                score += SHARED_NODE * len(edges.intersection(rest)) + SECOND_EDGE * bool(edges)
                edges.update(rest)
            elif kind == PATH:
                ends = {-1 - leaf for leaf in rest}
                ends.update(self.single[leaf] for leaf in rest if leaf in self.single)
                score += SHARED_NODE * bool(edges & ends) + SECOND_EDGE * bool(edges)
                edges |= ends
        return score

    def _is_possible(self, state: tuple[int, ...]) -> bool:
        """Return True unless a part of the set hides behind another, where no test can show it."""
        variables = [self.parts[index].variable for index in state]
        if len(set(variables)) < len(variables):
            return False
        nodes = {variable[1] for variable in variables if variable[0] == NODE}
        covered = self.covered(state)
        paths = {variable[1:] for variable in variables if variable[0] == PATH}
        scaled = SCALE in variables
        for kind, *rest in variables:
            if kind == RAIL and rest[0] in nodes:
                return False
            if kind == PAIR and (scaled or not covered.isdisjoint(rest) or self.fabric.path(*rest) in paths):
                return False
            if kind == PATH and (scaled or not self.is_path(rest, _mask(covered))):
                return False
        if scaled:
            # no group is that large without a node that makes it fail anyway
            return max(self.parts[index].least for index in state) <= len(self.nodes) - len(covered)
        return True

    def variables(self, state: tuple[int, ...]) -> frozenset[Variable]:
        """Return the parts that a set names. If most rails of a node are bad, their common part is: the node."""
        named = frozenset(self.parts[index].variable for index in state)
        rails = Counter(variable[1] for variable in named if variable[0] == RAIL)
        nodes = {node for node, count in rails.items() if count > self.rails // 2}
        if not nodes:
            return named
        others = {variable for variable in named if variable[0] != RAIL or variable[1] not in nodes}
        return frozenset(others | {(NODE, node) for node in nodes})

    def covered(self, state: Iterable[int]) -> set[int]:
        """Return the nodes that make every test over all their rails fail: nothing else shows on them."""
        parts = (self.parts[index] for index in state if index < self.lasting)
        return {part.variable[1] for part in parts if part.variable[0] == NODE or (part.variable[0] == RAIL and part.whole)}


class FaultSets:
    """Probabilities of sets of faults after the trials of a history. `states` has the sets, by index of their parts."""

    def __init__(self, catalog: PartCatalog, policy: Policy, shown: Iterable[Trial]) -> None:
        self.catalog, self.policy, self.parts = catalog, policy, catalog.parts
        self.trials = [trial for trial in shown if not trial.mask & ~_mask(catalog.nodes)]
        self.observed = sum(1 << place for place, trial in enumerate(self.trials) if trial.failed)
        self.fails = self._failing()
        self.suspects = [index for index in range(catalog.lasting) if self.fails[index] & self.observed]
        self.rate = policy.noise or EXACT
        self.weight = weight(self.rate)
        self._latest: tuple[object, States] = (None, {})
        # from no fault, and from all nodes that never passed: one change at a time does not lead from a bad path to a bad leaf
        self.starts = [(), self._never_passed()]
        self.loose: list[int] = []
        self._improve()
        self._look_for_intermittent()
        if policy.noise:
            loose = self._predicted(index for index in self.best if index >= self.catalog.lasting)
            wrong = ((self._predicted(self.best) ^ self.observed) & ~loose).bit_count()
            rate = (TESTS_OF_PRIOR * policy.noise + wrong) / (TESTS_OF_PRIOR + len(self.trials))
            self.rate = min(max(rate, policy.noise / 2), MOST_NOISE)
            self.weight = weight(self.rate)
            self._improve()
        self.states = self._normalised()

    def _improve(self) -> None:
        self.starts = list(dict.fromkeys(self._most_probable(start) for start in self.starts))
        self.best = max(self.starts, key=self.score)

    def _look_for_intermittent(self) -> None:
        """Take parts into account that fail now and then, if lasting faults alone need wrong results to explain the history."""
        if self._predicted(self.best) == self.observed and not self.policy.noise:
            return
        for index in range(self.catalog.lasting, len(self.parts)):
            fails = (self.fails[index] & self.observed).bit_count()
            if fails >= self._fewest(index) and self.fails[index] & ~self.observed:
                self.loose.append(index)
        if self.loose:
            self.suspects += self.loose
            self._improve()

    def _never_passed(self) -> tuple[int, ...]:
        """Return the nodes as bad parts of which two tests failed and none passed."""
        passed, failed = 0, Counter[int]()
        for trial in self.trials:
            if trial.failed:
                failed.update(trial.nodes)
            else:
                passed |= trial.mask
        nodes = {(NODE, node) for node, count in failed.items() if count > 1 and not passed >> node & 1}
        places = {part.variable: index for index, part in reversed(list(enumerate(self.parts)))}
        return tuple(sorted(places[node] for node in nodes if node in places))

    def _failing(self) -> list[int]:
        """Return for each part the bits of the trials that it makes fail."""
        fails = [0] * len(self.parts)
        for place, trial in enumerate(self.trials):
            bit, rail = 1 << place, trial.rail if trial.kind == "rail" else 0
            for index, code in self.catalog.outcomes(trial.kind, trial.mask).items():
                if code >> rail & 1:
                    fails[index] |= bit
        return fails

    def _predicted(self, state: Iterable[int]) -> int:
        fails = 0
        for index in state:
            fails |= self.fails[index]
        return fails

    def score(self, state: tuple[int, ...]) -> float:
        """Return the log of the probability of a set of faults, up to a constant; minus infinity if it is impossible."""
        prior = self.catalog.prior(state)
        if prior == -math.inf:
            return prior
        fails, lasting, loose = 0, self.catalog.lasting, state[:0]
        for place, index in enumerate(state):
            if index >= lasting:
                loose = state[place:]
                break
            fails |= self.fails[index]
        score = prior - self.weight * (fails ^ self.observed).bit_count()
        for index in loose:
            score += self._gain(index, fails)
            fails |= self.fails[index]
        return score

    def _fewest(self, index: int) -> int:
        """Return the number of failed tests from which an intermittent part is possible: the rest is noise, or not to be seen."""
        return 1 if self.parts[index].share == OFTEN else 2

    def _gain(self, index: int, explained: int) -> float:
        """Return how much an intermittent part adds to the score, by the tests that other parts do not make fail."""
        tests = self.fails[index] & ~explained
        failed = (tests & self.observed).bit_count()
        if failed < self._fewest(index):
            return -math.inf
        fail, succeed = gains(self.parts[index].share, self.rate)
        return failed * fail + (tests.bit_count() - failed) * succeed

    def _near(self, state: tuple[int, ...], wide: bool) -> Iterator[tuple[int, ...]]:
        """Yield the sets that differ by one part; if `wide`, also those with two others in addition or in place of up to two."""
        yield from ((*state, index) for index in (*range(self.catalog.lasting), *self.loose) if index not in state)
        for place in range(len(state)):
            rest = state[:place] + state[place + 1 :]
            yield rest
            yield from ((*rest, index) for index in self.suspects)
        if not wide:
            return
        most = 2 if len(state) <= MOST_EXCHANGED else 1
        sizes = range(max(len(state) - most, 0), len(state) + 1)
        for rest in itertools.chain.from_iterable(itertools.combinations(state, size) for size in sizes):
            close = sorted(self.suspects, key=lambda index: -self.score(tuple(sorted((*rest, index)))))[:CLOSEST]
            yield from ((*rest, *two) for two in itertools.combinations(close, 2))

    def _scored(self, state: tuple[int, ...], wide: bool) -> States:
        key = (state, wide, self.weight, len(self.loose))
        if self._latest[0] == key:
            return self._latest[1]
        near = {tuple(sorted(other)) for other in self._near(state, wide)} | {state}
        self._latest = (key, {other: score for other in near if (score := self.score(other)) > -math.inf})
        return self._latest[1]

    def _most_probable(self, state: tuple[int, ...]) -> tuple[int, ...]:
        for _ in range(IMPROVEMENTS):
            scored = self._scored(state, wide=False)
            better = max(scored, key=lambda other: (scored[other], other))
            if scored[better] <= scored[state]:
                scored = self._scored(state, wide=True)
                better = max(scored, key=lambda other: (scored[other], other))
                if scored[better] <= scored[state]:
                    break
            state = better
        return state

    def _normalised(self) -> States:
        scored: States = {}
        for start in self.starts:
            scored |= self._scored(start, wide=True)
        top = max(scored.values())
        weights = {state: math.exp(score - top) for state, score in scored.items() if score > top - 40}
        whole = math.fsum(weights.values())
        return {state: size / whole for state, size in sorted(weights.items(), key=lambda row: (-row[1], row[0]))}

    @cached_property
    def marginals(self) -> dict[Variable, float]:
        """Return the probability of each variable that any set names."""
        shares: dict[Variable, float] = {}
        for state, share in self.states.items():
            for variable in self.catalog.variables(state):
                shares[variable] = shares.get(variable, 0.0) + share
        return shares

    def without(self, named: frozenset[Variable]) -> float:
        """Return the probability that there is a fault besides the named ones."""
        rest = (share for state, share in self.states.items() if not self.catalog.variables(state) <= named)
        return min(math.fsum(rest), 1.0)

    def sizes(self, doubt: float) -> tuple[int, int]:
        """Return the largest size that passes and the smallest that fails of a fault of scale, but for a share of `doubt`."""
        shares = dict[int, float]()
        for state, share in self.states.items():
            for index in state:
                if least := self.parts[index].least:
                    shares[least] = shares.get(least, 0.0) + share
        whole = math.fsum(shares.values())
        likely = [least for least, share in shares.items() if share > doubt * whole]
        return min(likely, default=3) - 1, max(likely, default=3)


@lru_cache(maxsize=4096)
def gains(share: float, rate: float) -> tuple[float, float]:
    """Return what a failed and a passed test add to the score of a part that fails a share of its tests.

    Without the part, a failed test counts as a wrong result and a passed one as a right result.
    """
    fails = share * (1 - rate) + (1 - share) * rate
    return math.log(fails / rate), math.log((1 - fails) / (1 - rate))


def _mask(nodes: Iterable[int]) -> int:
    return sum(1 << node for node in nodes)


@lru_cache(maxsize=16)
def part_catalog(layout: FabricMap, policy: Policy, silent: frozenset[int]) -> PartCatalog:
    """Return the parts of a fabric. They are kept, with the tests in which they show, because each round asks for them again."""
    return PartCatalog(IndexedFabric(layout), policy, silent)
