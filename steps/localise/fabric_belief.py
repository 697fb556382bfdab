"""Beliefs about nodes, rails, paths and pairs from tests of two nodes, and the rate of wrong results that these tests show.

Wrong results may come in bursts of one rack and drift with time, so the rate is estimated for each leaf in each round.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from steps.localise import propagation
from steps.localise.contract import Policy
from steps.localise.trials import IndexedFabric, Trial

NODE, RAIL, PATH, PAIR = range(4)
"""First element of a variable: (NODE, node), (RAIL, node, rail), (PATH, leaf, leaf), (PAIR, node, node)."""
Variable = tuple[int, ...]

EXACT = 1e-9
"""Rate of wrong results where the policy says that there are none."""
MOST_NOISE = 0.3
"""Highest rate that is assumed: nearer to one half, tests would count for nothing and no number of repeats would do."""
TESTS_OF_PRIOR, TESTS_OF_BASE = 200.0, 20.0
"""The policy's rate counts as so many tests against the whole history; the whole history's rate, against a leaf in one round."""
PATH_FAULTS, PAIR_FAULTS, RAIL_FAULTS, SCALE_FAULTS = 0.2, 0.1, 0.5, 0.1
"""Expected faults of each kind in a whole fabric, before any test."""
REPEATED_PAIRS = 0.002
"""Share of pair faults among pairs that failed and were tested again: many of them are candidates of the search."""
NAMED_AT_MOST = 8
"""The bound `alpha` of a run is divided among so many named parts."""


class Limits:
    """Thresholds of the sequential tests, as log odds or log likelihood ratios, from the policy's error rates."""

    def __init__(self, policy: Policy) -> None:
        self.error = policy.alpha / NAMED_AT_MOST
        self.named = math.log((1 - self.error) / self.error)
        self.cleared = math.log(policy.beta / (1 - policy.alpha))
        self.doubt = math.log(0.01 / 0.99)


class Beliefs:
    """Log odds of each variable, and the noise of each leaf in each round, as the tests of nodes, pairs and rails show them."""

    def __init__(self, fabric: IndexedFabric, policy: Policy, shown: Sequence[Trial]) -> None:
        self.fabric, self.policy, self.limits = fabric, policy, Limits(policy)
        self._paths, self._pairs = "path" in policy.kinds, "pair" in policy.kinds
        self.trials = [trial for trial in shown if trial.kind != "group"]
        self.doubted = {tuple(sorted(trial.nodes)) for trial in self.trials if trial.failed and len(trial.nodes) == 2}
        self.bad: frozenset[int] = frozenset()
        self._parts = [self.variables(trial) for trial in self.trials]
        self._leaves = [tuple({fabric.leaf[node]: None for node in trial.nodes}) for trial in self.trials]
        self.base = policy.noise or EXACT
        self.rates: dict[tuple[int, int], float] = {}
        self.prior = self._priors()
        self.odds = self._propagated()
        if policy.noise:
            self._estimate_noise()
        self.bad = frozenset(node for node in range(fabric.size) if self.is_bad((NODE, node)))
        if self.bad:
            self._expect_rails()
        if self.bad or policy.noise:
            self.odds = self._propagated()

    def variables(self, trial: Trial) -> tuple[Variable, ...]:
        """Return the parts that a test of one or two nodes uses, of the kinds that the policy looks for."""
        nodes, rail = trial.nodes, trial.kind == "rail"
        if len(nodes) == 1:
            return ((NODE, nodes[0]),)
        first, second = nodes if nodes[0] < nodes[1] else nodes[::-1]
        ends = ((RAIL, first, trial.rail), (RAIL, second, trial.rail)) if rail else ((NODE, first), (NODE, second))
        # all rails of a bad node fail together, which must not be laid on the one path or partner that they had
        if rail and (first in self.bad or second in self.bad):
            return ends
        low, high = self.fabric.leaf[first], self.fabric.leaf[second]
        edges: tuple[Variable, ...] = ()
        if low != high and self._paths:
            edges = ((PATH, low, high) if low < high else (PATH, high, low),)
        if (first, second) in self.doubted and self._pairs:
            edges += ((PAIR, first, second),)
        return ends + edges

    def noise(self, trial: Trial) -> float:
        """Return the rate of wrong results of a test: the highest of its leaves for few nodes, the mean for a group."""
        return self._noise(tuple({self.fabric.leaf[node]: None for node in trial.nodes}), trial.number)

    def _noise(self, leaves: tuple[int, ...], number: int) -> float:
        if not self.rates:
            return self.base
        if len(leaves) <= 2:
            first, last = self.rates.get((leaves[0], number), self.base), self.rates.get((leaves[-1], number), self.base)
            return first if first >= last else last
        rates = [self.rates.get((leaf, number), self.base) for leaf in sorted(leaves)]
        return max(self.base, sum(rates) / len(rates))

    def weight(self, trial: Trial) -> float:
        """Return how much a test's result moves the log odds of a part that alone would explain its failure, with its sign."""
        size = propagation.weight(self.noise(trial))
        return size if trial.failed else -size

    @cached_property
    def own(self) -> dict[tuple[int, ...], float]:
        """Return the log likelihood ratio of each pair from tests of exactly this pair."""
        own: dict[tuple[int, ...], float] = {}
        for trial in self.trials:
            if trial.kind == "pair":
                pair = trial.nodes if trial.nodes[0] < trial.nodes[1] else trial.nodes[::-1]
                own[pair] = own.get(pair, 0.0) + self.weight(trial)
        return own

    def ratio(self, variable: Variable) -> float:
        """Return the log likelihood ratio of a variable: its log odds without the prior."""
        return self.odds.get(variable, 0.0) - self.prior.get(variable, 0.0)

    def node(self, node: int) -> float:
        """Return the log odds of a node being bad."""
        return self.odds[NODE, node]

    def is_bad(self, variable: Variable) -> bool:
        """Return True if the tests name the variable."""
        return self.odds.get(variable, -math.inf) >= self.limits.named

    def is_cleared(self, variable: Variable) -> bool:
        """Return True if the tests clear the variable."""
        return self.ratio(variable) <= self.limits.cleared

    def _priors(self) -> dict[Variable, float]:
        size, leaves, rails = self.fabric.size, len(self.fabric.leaf_names), self.fabric.rails
        odds, share = propagation.log_odds, min(self.policy.expected / size, 0.25)
        prior: dict[Variable, float] = {(NODE, node): odds(share) for node in range(size)}
        if rails:
            prior |= {(RAIL, node, rail): odds(RAIL_FAULTS / (size * rails)) for node in range(size) for rail in range(rails)}
        path = odds(min(PATH_FAULTS / max(leaves * (leaves - 1) / 2, 1), 0.1))
        prior |= {(PATH, first, second): path for second in range(leaves) for first in range(second)}
        pair = odds(min(PAIR_FAULTS / max(size * (size - 1) / 2, 1), 0.1))
        tests = Counter(tuple(sorted(trial.nodes)) for trial in self.trials if trial.kind == "pair")
        return prior | {(PAIR, *nodes): odds(REPEATED_PAIRS) if tests[nodes] > 1 else pair for nodes in self.doubted}

    def _propagated(self) -> dict[Variable, float]:
        rows = zip(self._parts, self.trials, self._leaves, strict=True)
        return propagation.propagate(
            self.prior, [(parts, trial.failed, self._noise(leaves, trial.number)) for parts, trial, leaves in rows]
        )

    def _estimate_noise(self) -> None:
        """Estimate rates from results that the bad parts do not explain: of the history, then of each leaf in each round."""
        wrong: dict[tuple[int, int], float] = {}
        tests: dict[tuple[int, int], int] = {}
        whole = 0.0
        likely = {variable for variable, odds in self.odds.items() if odds > self.limits.doubt}
        for parts, trial, leaves in zip(self._parts, self.trials, self._leaves, strict=True):
            share = 0.0
            if trial.failed or not likely.isdisjoint(parts):
                share = propagation.dirty(self.odds, parts)
                share = 1 - share if trial.failed else share
            whole += share
            for leaf in leaves:
                place = (leaf, trial.number)
                tests[place] = tests.get(place, 0) + 1
                if share:
                    wrong[place] = wrong.get(place, 0.0) + share
        prior = self.policy.noise
        self.base = min((TESTS_OF_PRIOR * prior + whole) / (TESTS_OF_PRIOR + len(self.trials)), MOST_NOISE)
        for place, number in tests.items():
            rate = (TESTS_OF_BASE * self.base + wrong.get(place, 0.0)) / (TESTS_OF_BASE + number)
            self.rates[place] = min(max(rate, prior / 2), MOST_NOISE)

    def _expect_rails(self) -> None:
        """Raise the prior of the rails of bad nodes, because a rail is a likely cause, and read their rail tests anew."""
        likely = propagation.log_odds(RAIL_FAULTS / max(self.fabric.rails, 1))
        self.prior |= {(RAIL, node, rail): likely for node in self.bad for rail in range(self.fabric.rails)}
        self._parts = [
            self.variables(trial) if trial.kind == "rail" and self.bad.intersection(trial.nodes) else parts
            for trial, parts in zip(self.trials, self._parts, strict=True)
        ]
