"""Beliefs about nodes, rails, paths and pairs from tests of two nodes, and the rate of wrong results that these tests show.

Wrong results may come in bursts of one rack and drift with time, so the rate is estimated for each leaf in each round.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
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
"""Tests that the policy's rate counts for against the whole history, and the whole history's rate against a leaf in one round."""
PATH_FAULTS, PAIR_FAULTS, RAIL_FAULTS, SCALE_FAULTS = 0.2, 0.1, 0.5, 0.1
"""Expected faults of each kind in a whole fabric, before any test."""
REPEATED_PAIRS = 0.002
"""Share of pair faults among pairs that failed and were tested again: many of them are candidates of the search."""
NAMED_AT_MOST = 8
"""Named parts among which the bound `alpha` of a run is divided."""


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
        self.doubted = {trial.pair for trial in self.trials if trial.failed and trial.pair}
        self.bad: frozenset[int] = frozenset()
        self.base = policy.noise or EXACT
        self.rates: dict[int, float] = {}
        self._doubted = [*self.doubted]
        self._pair_numbers = {pair: number for number, pair in enumerate(self._doubted, fabric.first_pair)}
        # fabrics of 10,000 nodes have a million parts, so beliefs are lists by number
        self._expected = self._priors()
        self._parts = self._variables()
        self._levels = self._propagated()
        if policy.noise:
            self._estimate_noise()
        self.bad = frozenset(node for node in range(fabric.size) if self.is_bad((NODE, node)))
        if self.bad:
            self._expect_rails()
        if self.bad or policy.noise:
            self._levels = self._propagated()

    def _variables(self) -> list[tuple[int, ...]]:
        """Return for each test the numbers of the parts that it uses, of the kinds that the policy looks for."""
        parts = [trial.parts if self._paths else trial.parts[:2] for trial in self.trials]
        if self._pairs and self.doubted:
            pairs = self._pair_numbers
            for place, trial in enumerate(self.trials):
                if trial.pair in pairs:
                    parts[place] = (*parts[place], pairs[trial.pair])
        return parts

    def noise(self, trial: Trial) -> float:
        """Return the rate of wrong results of a test: the highest of its leaves for few nodes, the mean for a group."""
        if not self.rates:
            return self.base
        rates = [self.rates.get(place, self.base) for place in trial.places]
        return max(rates) if len(rates) <= 2 else max(self.base, sum(rates) / len(rates))

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
                own[trial.pair] = own.get(trial.pair, 0.0) + self.weight(trial)
        return own

    def ratio(self, variable: Variable) -> float:
        """Return the log likelihood ratio of a variable: its log odds without the prior."""
        number = self.number_of(variable)
        return self._levels[number] - self._expected[number] if number >= 0 else 0.0

    def rail_ratios(self, node: int) -> list[float]:
        """Return the log likelihood ratio of each rail of a node."""
        first = self.fabric.size + node * self.fabric.rails
        last = first + self.fabric.rails
        return [odds - prior for odds, prior in zip(self._levels[first:last], self._expected[first:last], strict=True)]

    def bad_rails(self, node: int) -> tuple[int, ...]:
        """Return the rails of a node that the tests name."""
        first = self.fabric.size + node * self.fabric.rails
        named = self.limits.named
        return tuple([rail for rail, odds in enumerate(self._levels[first : first + self.fabric.rails]) if odds >= named])

    def node(self, node: int) -> float:
        """Return the log odds of a node being bad."""
        return self._levels[node]

    def odds(self, variable: Variable, default: float = 0.0) -> float:
        """Return the log odds of a variable; `default` if the tests do not weigh it."""
        number = self.number_of(variable)
        return self._levels[number] if number >= 0 else default

    def prior(self, variable: Variable, default: float = 0.0) -> float:
        """Return the log odds of a variable before any test; `default` if the tests do not weigh it."""
        number = self.number_of(variable)
        return self._expected[number] if number >= 0 else default

    def paths_above(self, bound: float) -> list[tuple[int, int]]:
        """Return the paths whose log odds are above a bound, sorted."""
        first, last = self.fabric.first_path, self.fabric.first_pair
        likely = [number for number, odds in enumerate(self._levels[first:last], first) if odds > bound]
        return sorted(self.fabric.path_of_number(number) for number in likely)

    @cached_property
    def tested_paths(self) -> list[tuple[int, int]]:
        """Return the paths that tests of two nodes used, sorted."""
        last = self.fabric.first_pair
        numbers = {parts[2] for parts in self._parts if len(parts) > 2 and parts[2] < last}
        return sorted(self.fabric.path_of_number(number) for number in numbers)

    @property
    def rows(self) -> Iterator[tuple[Trial, tuple[int, ...]]]:
        """Return the tests with the numbers of the parts that they use."""
        return zip(self.trials, self._parts, strict=True)

    def number_of(self, variable: Variable) -> int:
        """Return the number of a variable; -1 if the tests do not weigh it."""
        kind, *ends = variable
        if kind == PAIR:
            return self._pair_numbers.get(variable[1:], -1)
        if kind == NODE:
            return ends[0]
        if kind == RAIL:
            return self.fabric.size + ends[0] * self.fabric.rails + ends[1]
        return self.fabric.number_of_path(ends[0], ends[1]) if kind == PATH else -1

    def variable_of(self, number: int) -> Variable:
        """Return the variable of a number."""
        fabric = self.fabric
        if number < fabric.size:
            return NODE, number
        if number < fabric.first_path:
            return RAIL, *divmod(number - fabric.size, fabric.rails)
        if number < fabric.first_pair:
            return PATH, *fabric.path_of_number(number)
        return PAIR, *self._doubted[number - fabric.first_pair]

    @cached_property
    def named_variables(self) -> tuple[Variable, ...]:
        """Return the variables that the tests name."""
        return tuple([self.variable_of(number) for number in sorted(self.named_numbers)])

    @cached_property
    def named_numbers(self) -> frozenset[int]:
        """Return the numbers of the variables that the tests name."""
        named = self.limits.named
        return frozenset([number for number, odds in enumerate(self._levels) if odds >= named])

    def is_bad(self, variable: Variable) -> bool:
        """Return True if the tests name the variable."""
        return self.odds(variable, -math.inf) >= self.limits.named

    def is_cleared(self, variable: Variable) -> bool:
        """Return True if the tests clear the variable."""
        return self.ratio(variable) <= self.limits.cleared

    def _priors(self) -> list[float]:
        size, rails = self.fabric.size, self.fabric.rails
        odds, share = propagation.log_odds, min(self.policy.expected / size, 0.25)
        single = odds(RAIL_FAULTS / max(size * rails, 1))
        paths = self.fabric.first_pair - self.fabric.first_path
        path = odds(min(PATH_FAULTS / max(paths, 1), 0.1))
        pair = odds(min(PAIR_FAULTS / max(size * (size - 1) / 2, 1), 0.1))
        tests = Counter([trial.pair for trial in self.trials if trial.kind == "pair"])
        repeated = odds(REPEATED_PAIRS)
        pairs = [repeated if tests[nodes] > 1 else pair for nodes in self._doubted]
        return [odds(share)] * size + [single] * (size * rails) + [path] * paths + pairs

    def _propagated(self) -> list[float]:
        if self.rates:
            ends = [(self.rates[trial.places[0]], self.rates[trial.places[-1]]) for trial in self.trials]
            noise = [first if first >= last else last for first, last in ends]
        else:
            noise = [self.base] * len(self.trials)
        failed = [trial.failed for trial in self.trials]
        return propagation.propagate(self._expected, [*zip(self._parts, failed, noise, strict=True)])

    def _estimate_noise(self) -> None:
        """Estimate rates from results that the bad parts do not explain: of the history, then of each leaf in each round."""
        wrong: dict[int, float] = {}
        tests = Counter(itertools.chain.from_iterable([trial.places for trial in self.trials]))
        whole = 0.0
        innocent = {number for number, odds in enumerate(self._levels) if odds > self.limits.doubt}.isdisjoint
        for parts, trial in zip(self._parts, self.trials, strict=True):
            if trial.failed or not innocent(parts):
                share = propagation.dirty(self._levels, parts)
                share = 1 - share if trial.failed else share
                whole += share
                for place in trial.places if share else ():
                    wrong[place] = wrong.get(place, 0.0) + share
        prior = self.policy.noise
        self.base = min((TESTS_OF_PRIOR * prior + whole) / (TESTS_OF_PRIOR + len(self.trials)), MOST_NOISE)
        for place, number in tests.items():
            rate = (TESTS_OF_BASE * self.base + wrong.get(place, 0.0)) / (TESTS_OF_BASE + number)
            self.rates[place] = min(max(rate, prior / 2), MOST_NOISE)

    def _expect_rails(self) -> None:
        """Raise the prior of the rails of bad nodes, because a rail is a likely cause, and read their rail tests anew."""
        likely = propagation.log_odds(RAIL_FAULTS / max(self.fabric.rails, 1))
        for node in self.bad:
            first = self.fabric.size + node * self.fabric.rails
            self._expected[first : first + self.fabric.rails] = [likely] * self.fabric.rails
        # all rails of a bad node fail together, which must not be laid on the one path or partner that they had
        self._parts = [
            parts[:2] if trial.kind == "rail" and not self.bad.isdisjoint(trial.nodes) else parts
            for trial, parts in zip(self.trials, self._parts, strict=True)
        ]
