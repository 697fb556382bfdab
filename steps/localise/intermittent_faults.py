"""Nodes that fail now and then, in fabrics too large for sets of faults.

Beliefs assume that a bad node fails all of its tests. One that fails a third of them passes for good, or for a bad pair with the
partner that it happened to fail with. Here all tests of a node are weighed against the noise that the other tests show.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property

from steps.localise.fabric_belief import MOST_NOISE, PAIR, TESTS_OF_BASE, TESTS_OF_PRIOR, Beliefs
from steps.localise.fault_sets import INTERMITTENT, OFTEN, SOMETIMES, gains
from steps.localise.trials import Trial

SHARES = (SOMETIMES, OFTEN)
FEWEST_FAILURES, FEWEST_ROUNDS = 3, 4
"""Failures from which a node is weighed, and rounds with failures from which it is named: bursts of noise are shorter."""
MARGIN = 3.0
"""A node is named only if it explains its failures better than each of its rails, pairs and paths alone, by this log ratio."""
CERTAIN = 0.98
"""Share of failures of a rail, pair or path that always fails, beside wrong results."""


class IntermittentFaults:
    """Nodes with more failures than noise and named parts explain: `named` ones, and those in `doubt`, with their log odds."""

    def __init__(self, beliefs: Beliefs) -> None:
        self.beliefs, self.policy = beliefs, beliefs.policy
        self.prior = math.log(min(self.policy.expected / beliefs.fabric.size, 0.25) * INTERMITTENT)
        self.named: dict[int, float] = {}
        self.doubt: dict[int, float] = {}
        if self.policy.noise and "node" in self.policy.kinds:
            self._weigh()

    def _weigh(self) -> None:
        """Name one node after the other, because each explains failures of its partners."""
        while True:
            odds = {node: self._odds(node) for node in self._candidates()}
            self.doubt = {node: size for node, (size, _) in odds.items() if size > 0}
            proven = [(size, -node) for node, (size, proven) in odds.items() if proven]
            if not proven:
                return
            size, node = max(proven)
            self.named[-node] = size

    @cached_property
    def _unexplained(self) -> list[Trial]:
        """Return the tests that use no part which beliefs name."""
        innocent = self.beliefs.named_numbers.isdisjoint
        return [trial for trial, parts in self.beliefs.rows if innocent(parts)]

    @cached_property
    def _open(self) -> list[Trial]:
        """Return the tests that use no named part, but for pairs that one of their nodes explains better."""
        pairs = [variable[1:] for variable in self.beliefs.named_variables if variable[0] == PAIR]
        doubted = {pair for pair in pairs if self.is_likelier(pair)}
        if not doubted:
            return self._unexplained
        return [trial for trial, parts in self.beliefs.rows if self._is_only(parts, trial.pair if trial.pair in doubted else ())]

    @cached_property
    def _of_node(self) -> dict[int, list[Trial]]:
        """Return the tests of `_open` by node, of nodes that failed often enough to be weighed."""
        trials: dict[int, list[Trial]] = {node: [] for node in self._candidates()}
        for trial in self._open:
            for node in trial.nodes:
                if node in trials:
                    trials[node].append(trial)
        return trials

    @cached_property
    def _failures(self) -> list[Trial]:
        return [trial for trial in self._open if trial.failed]

    def _candidates(self) -> list[int]:
        counts = Counter(node for trial in self._failures if self.named.keys().isdisjoint(trial.nodes) for node in trial.nodes)
        return sorted(node for node, count in counts.items() if count >= FEWEST_FAILURES)

    def _odds(self, node: int) -> tuple[float, bool]:
        """Return the log odds of a node that fails now and then, and True if they are enough to name it."""
        trials = [trial for trial in self._of_node[node] if self.named.keys().isdisjoint(trial.nodes)]
        noise = self._noise(trials if self._open is self._unexplained else self._without_named(trials))
        own = _best(trials, noise, SHARES)
        rounds = {trial.number for trial in trials if trial.failed}
        odds = own + self.prior
        if odds < self.beliefs.limits.named or len(rounds) < FEWEST_ROUNDS:
            return odds, False
        leaf = self.beliefs.fabric.leaf
        views: list[Callable[[Trial], object]] = [
            lambda trial: trial.rail if trial.rail >= 0 else None,
            lambda trial: trial.pair or None,
            lambda trial: tuple(sorted(leaf[end] for end in trial.pair)) or None,
        ]
        parts = [(view, part) for view in views for part in {view(trial) for trial in trials if trial.failed} - {None}]
        others = [_best([trial for trial in trials if view(trial) == part], noise, (*SHARES, CERTAIN)) for view, part in parts]
        return odds, own >= max(others, default=0.0) + MARGIN

    @cached_property
    def _ids(self) -> frozenset[tuple[int, str]]:
        return frozenset([(trial.number, trial.id) for trial in self._unexplained])

    @cached_property
    def _wrong_tests(self) -> int:
        return sum(trial.failed for trial in self._unexplained)

    @cached_property
    def _tests(self) -> Counter[int]:
        return Counter(itertools.chain.from_iterable([trial.places for trial in self._unexplained]))

    @cached_property
    def _wrong(self) -> Counter[int]:
        return Counter(place for trial in self._unexplained if trial.failed for place in trial.places)

    def _without_named(self, trials: Sequence[Trial]) -> list[Trial]:
        return [trial for trial in trials if (trial.number, trial.id) in self._ids]

    def _noise(self, trials: Sequence[Trial]) -> Callable[[Trial], float]:
        """Return the rate of wrong results of a test as all tests but these show it, by leaf and round."""
        tests = Counter(place for trial in trials for place in trial.places)
        fails = Counter(place for trial in trials if trial.failed for place in trial.places)
        prior, wrong = self.policy.noise, self._wrong_tests - sum(trial.failed for trial in trials)
        base = (TESTS_OF_PRIOR * prior + wrong) / (TESTS_OF_PRIOR + len(self._unexplained) - len(trials))

        def rate(trial: Trial) -> float:
            rates = [
                (TESTS_OF_BASE * base + self._wrong[place] - fails[place]) / (TESTS_OF_BASE + self._tests[place] - tests[place])
                for place in trial.places
            ]
            return min(max(*rates, prior / 2), MOST_NOISE)

        return rate

    def failures(self, node: int) -> tuple[int, int]:
        """Return how many tests of a node failed that no named part explains, and how many it had."""
        own = [trial.failed for trial in self._of_node[node]]
        return sum(own), len(own)

    def is_likelier(self, pair: tuple[int, ...]) -> bool:
        """Return True if a node of a pair that fails now and then explains its failures better than a bad pair does.

        Only nodes that failed with others too are compared: a good node passes them.
        """
        for node in pair if self.policy.noise and "node" in self.policy.kinds else ():
            trials = [trial for trial, parts in self.beliefs.rows if node in trial.nodes and self._is_only(parts, pair)]
            if not any(trial.failed and trial.pair != pair for trial in trials):
                continue
            noise = self._noise(self._without_named(trials))
            edge = _best([trial for trial in trials if trial.pair == pair], noise, (CERTAIN,))
            if _best(trials, noise, SHARES) + self.prior > edge + self.beliefs.prior((PAIR, *pair), self.prior):
                return True
        return False

    def _is_only(self, parts: Sequence[int], pair: tuple[int, ...]) -> bool:
        """Return True if a test uses no named part but this pair."""
        return self.beliefs.named_numbers.intersection(parts) <= {self.beliefs.number_of((PAIR, *pair))}


def _best(trials: Sequence[Trial], noise: Callable[[Trial], float], shares: Sequence[float]) -> float:
    """Return the log likelihood ratio of a part that fails a share of these tests against noise, for the share that fits best."""
    rates = [(trial.failed, noise(trial)) for trial in trials]
    return max(math.fsum(gains(share, rate)[0 if failed else 1] for failed, rate in rates) for share in shares)
