"""Status of every part after a history: named, cleared, in doubt, set aside, and what groups still leave open."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from steps.localise.contract import FabricTest, History, Round
from steps.localise.fabric_belief import NODE, PAIR, PATH, RAIL, Beliefs, Variable
from steps.localise.intermittent_faults import IntermittentFaults
from steps.localise.residual import SCALE, Hypothesis, Known, Residual
from steps.localise.trials import IndexedFabric, Trial, trials

MOST_TESTS_OF_A_NODE = 40
"""Tests of its own after which a node in doubt stays undecided."""
SILENT = 3
"""Tests without a single result after which a node is set aside as silent."""


class PartStatus:
    """Status of all parts, from beliefs and groups. Parts are named one after the other, because each explains results."""

    def __init__(self, history: History) -> None:
        self.fabric = IndexedFabric(history.map)
        self.policy = history.policy
        self.trials: Sequence[Trial] = trials(history, self.fabric)
        self.number = len(history.rounds) + 1
        unheard = unheard_nodes(history, self.fabric)
        self.unheard = frozenset(unheard)
        self.silent = frozenset(node for node, number in unheard.items() if number >= SILENT)
        self.beliefs = Beliefs(self.fabric, self.policy, self.trials)
        self.limits = self.beliefs.limits
        self._proven: dict[Variable, float] = {}
        self._scale: Hypothesis | None = None

    @cached_property
    def bad(self) -> frozenset[int]:
        """Return the nodes that tests of pairs name, whichever part of them is bad, and those that fail now and then."""
        lasting = frozenset(node for node in range(self.fabric.size) if self.beliefs.is_bad((NODE, node)))
        return lasting | self.intermittent.named.keys()

    @cached_property
    def intermittent(self) -> IntermittentFaults:
        """Return the nodes that fail now and then."""
        return IntermittentFaults(self.beliefs)

    @cached_property
    def rails(self) -> dict[int, tuple[int, ...]]:
        """Return the rails that are named, by node."""
        named: dict[int, tuple[int, ...]] = {}
        for node in range(self.fabric.size):
            if bad := self.beliefs.bad_rails(node):
                named[node] = bad
        return named

    @cached_property
    def doubted(self) -> frozenset[int]:
        """Return the nodes that some test makes suspect, and that further tests may clear or name."""
        failing = {node for trial in self.beliefs.trials if trial.failed and trial.kind != "rail" for node in trial.nodes}
        open_ones = {node for node in failing if not self.beliefs.is_cleared((NODE, node))} | self.intermittent.doubt.keys()
        return frozenset(open_ones - self.bad - self.silent)

    @cached_property
    def tests_of_node(self) -> Counter[int]:
        """Return how many tests of pairs each node had."""
        return Counter(node for trial in self.trials if trial.kind in ("pair", "self") for node in trial.nodes)

    @cached_property
    def hopeless(self) -> frozenset[int]:
        """Return the nodes that stay undecided: silent ones, and those that many tests neither cleared nor named."""
        worn = {node for node in self.doubted if self.tests_of_node[node] >= MOST_TESTS_OF_A_NODE}
        return self.silent | worn

    @cached_property
    def aside(self) -> frozenset[int]:
        """Return the nodes that no group may contain: named ones, those with named rails, and undecided ones."""
        return self.bad | frozenset(self.rails) | self.hopeless

    @cached_property
    def direct_paths(self) -> frozenset[tuple[int, ...]]:
        """Return the paths that tests of pairs name."""
        named = (variable for variable in self.beliefs.named_variables if self._is_path(variable))
        return frozenset(variable[1:] for variable in named)

    def _is_path(self, part: Variable) -> bool:
        """Return True for a path on which two different pairs of good nodes failed: a single one may be a fault of that pair."""
        return part[0] == PATH and len(self._failing_pairs.get(part[1:], ())) > 1

    @cached_property
    def _failing_pairs(self) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
        """Return by path the failed pairs without a named node."""
        pairs: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        for trial in self.beliefs.trials:
            good = trial.failed and trial.kind == "pair" and not self.aside.intersection(trial.nodes)
            if good and (path := self.fabric.path(*trial.nodes)):
                pairs.setdefault(path, set()).add(trial.pair)
        return pairs

    @cached_property
    def direct_pairs(self) -> frozenset[tuple[int, ...]]:
        """Return the pairs that their own tests name, without those on a named path or with a named node."""
        named = {variable[1:] for variable in self.beliefs.named_variables if variable[0] == PAIR}
        own = {pair for pair in named if not self.aside & set(pair) and self.fabric.path(*pair) not in self.direct_paths}
        return frozenset(pair for pair in own if not self.intermittent.is_likelier(pair))

    @cached_property
    def residual(self) -> Residual:
        """Return what groups leave open, after naming every part that groups and direct tests together prove."""
        mask = sum(1 << node for node in self.aside)
        known = Known(aside=mask, pairs=self.direct_pairs, paths=self.direct_paths)
        while True:
            rest = Residual(self.beliefs, self.trials, known)
            proven = max((part for part in rest.hypotheses if self._is_proven(rest, part)), key=rest.odds, default=None)
            if proven is None:
                return rest
            self._proven[proven.variable] = rest.odds(proven)
            known = self._extended(known, proven)

    @property
    def by_groups(self) -> dict[Variable, float]:
        """Return the log odds of the parts that groups and direct tests together prove."""
        _ = self.residual
        return self._proven

    @property
    def scale(self) -> Hypothesis | None:
        """Return the proven fault that depends on the number of nodes; None without one."""
        _ = self.residual
        return self._scale

    def _is_proven(self, rest: Residual, part: Hypothesis) -> bool:
        if part.variable == SCALE:
            return part.is_narrow and rest.odds(part) >= self.limits.named
        if part.variable[0] == PATH and not self._is_path(part.variable):
            return False
        if part.direct <= 0 or rest.odds(part) < self.limits.named:
            return False
        return part.variable[0] != PAIR or not self.intermittent.is_likelier(part.variable[1:])

    def _extended(self, known: Known, proven: Hypothesis) -> Known:
        kind, *rest = proven.variable
        pairs, paths, aside, at_least = known.pairs, known.paths, known.aside, known.at_least
        if kind == PAIR:
            pairs |= {tuple(rest)}
        elif kind == PATH:
            paths |= {tuple(rest)}
        elif kind == NODE:
            aside |= 1 << rest[0]
        else:
            at_least, self._scale = proven.upto, proven
        return Known(aside=aside, pairs=pairs, paths=paths, at_least=at_least)

    def evidence(self, variable: Variable) -> tuple[str, ...]:
        """Return ids of failing tests that use a part, at most 16."""
        if variable == SCALE:
            least = self.scale.upto if self.scale else 0
            failing = [trial for trial in self.trials if trial.kind == "group" and trial.failed and len(trial.nodes) >= least]
        else:
            failing = [trial for trial in self.beliefs.trials if trial.failed and self._uses(trial, variable)]
        return tuple(trial.id for trial in failing[:16])

    def _uses(self, trial: Trial, variable: Variable) -> bool:
        kind, *rest = variable
        if kind == NODE:
            return rest[0] in trial.nodes and (trial.kind != "rail" or rest[0] in self.intermittent.named)
        if kind == RAIL:
            return rest[0] in trial.nodes and trial.rail == rest[1]
        if kind == PAIR:
            return sorted(trial.nodes) == rest
        return len(trial.nodes) == 2 and self.fabric.path(*trial.nodes) == tuple(rest)


def unheard_nodes(history: History, fabric: IndexedFabric) -> Counter[int]:
    """Return the nodes whose tests, alone or with one partner, gave no result yet, with the number of these tests."""
    unknown: Counter[str] = Counter()
    for part in history.rounds:
        if len(part.outcomes) < len(part.tests) or any(outcome.result == "unknown" for outcome in part.outcomes):
            answered = _answered(part)
            unknown.update(name for test in part.tests if test.id not in answered and len(test.nodes) <= 2 for name in test.nodes)
    if not unknown:
        return Counter()
    heard = set[str]()
    for part in history.rounds:
        answered = _answered(part)
        heard.update(name for test in _small(part) if test.id in answered for name in test.nodes)
    return Counter({fabric.index[name]: number for name, number in unknown.items() if name not in heard})


def _answered(part: Round) -> set[str]:
    return {outcome.test for outcome in part.outcomes if outcome.result != "unknown"}


def _small(part: Round) -> list[FabricTest]:
    return [test for test in part.tests if len(test.nodes) <= 2]
