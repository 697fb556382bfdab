"""A simulated fabric with injected faults and noise, for the localisation's bench and tests. The localisation never sees it."""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from steps.localise.contract import FabricMap, FabricTest, FaultDiagnosis, History, Outcome, Policy, Round
from steps.localise.rounds import begin, next_round, verdict


@dataclass(frozen=True)
class InjectedFaults:
    """Faults of a fabric. A rail fault disturbs every test of its node, or rail tests alone if it is not `loud`."""

    nodes: frozenset[str] = frozenset()
    rails: frozenset[tuple[str, int]] = frozenset()
    pairs: frozenset[tuple[str, str]] = frozenset()
    paths: frozenset[tuple[str, str]] = frozenset()
    at_least: int = 0
    loud: bool = True

    def keys(self) -> set[tuple[object, ...]]:
        """Return the faults in the form of `named`."""
        keys: set[tuple[object, ...]] = {("node", node) for node in self.nodes} | {("rail", *rail) for rail in self.rails}
        keys |= {("pair", *sorted(pair)) for pair in self.pairs} | {("path", *sorted(path)) for path in self.paths}
        return keys | ({("scale",)} if self.at_least else set())


def named(diagnosis: FaultDiagnosis) -> set[tuple[object, ...]]:
    """Return the suspects of a diagnosis as comparable keys."""
    keys: set[tuple[object, ...]] = set()
    for suspect in diagnosis.suspects:
        if suspect.kind == "rail":
            keys.add(("rail", suspect.nodes[0], suspect.rail))
        elif suspect.kind == "scale":
            keys.add(("scale",))
        else:
            keys.add((suspect.kind, *sorted(suspect.nodes or suspect.leaves)))
    return keys


@dataclass
class IndependentNoise:
    """Each test shows the wrong result with the same probability."""

    rate: float
    chance: random.Random

    def advance(self) -> None:
        """Go on to the next round."""

    def is_wrong(self, leaves: Iterable[str]) -> bool:
        """Return True if a test on these leaves shows the wrong result."""
        return self.chance.random() < self.rate


@dataclass
class RackNoise:
    """Wrong results in bursts of single racks (leaves), on a rate that drifts over the rounds; `rate` is the mean of both.

    A rack is in a burst in one round of 20 on average and stays there for two rounds; then a quarter of its tests are wrong. The
    rate outside bursts swings by 80 % with a period of 16 rounds. A test has the mean of its racks' rates.
    """

    rate: float
    chance: random.Random
    leaves: Sequence[str]
    phase: float = 0.0
    number: int = 0
    bursts: set[str] = field(default_factory=set)

    SHARE, STAY, WRONG = 0.05, 0.5, 0.25

    def advance(self) -> None:
        """Go on to the next round: bursts end and begin."""
        self.number += 1
        enter = self.SHARE * (1 - self.STAY) / (1 - self.SHARE)
        self.bursts = {leaf for leaf in self.leaves if self.chance.random() < (self.STAY if leaf in self.bursts else enter)}

    def is_wrong(self, leaves: Iterable[str]) -> bool:
        """Return True if a test on these leaves shows the wrong result."""
        calm = max(self.rate - self.SHARE * self.WRONG, 0.0) / (1 - self.SHARE)
        calm *= 1 + 0.8 * math.sin(self.phase + 2 * math.pi * self.number / 16)
        rates = [self.WRONG if leaf in self.bursts else calm for leaf in leaves]
        return self.chance.random() < sum(rates) / len(rates)


Noise = IndependentNoise | RackNoise


class SimulatedFabric:
    """A runner of rounds on a fabric with injected faults."""

    def __init__(self, layout: FabricMap, faults: InjectedFaults, noise: Noise | None = None) -> None:
        self.layout, self.faults, self.noise = layout, faults, noise
        self.leaf = dict(zip(layout.nodes, layout.leaves, strict=True))

    def run(self, tests: Sequence[FabricTest]) -> list[Outcome]:
        """Return an outcome for each test."""
        if self.noise:
            self.noise.advance()
        return [self._outcome(test) for test in tests]

    def _outcome(self, test: FabricTest) -> Outcome:
        failed = self.is_faulty(test)
        if self.noise and self.noise.is_wrong(sorted({self.leaf[node] for node in test.nodes})):
            failed = not failed
        return Outcome(test=test.id, result="fail" if failed else "pass", figure=12.5 if failed else 48.5)

    def is_faulty(self, test: FabricTest) -> bool:
        """Return True if a fault disturbs a test."""
        faults, nodes = self.faults, set(test.nodes)
        rails = {rail for rail in faults.rails if rail[0] in nodes}
        if test.kind == "rail":
            rails = {rail for rail in rails if rail[1] == test.rail}
        elif not faults.loud:
            rails = set()
        leaves = {self.leaf[node] for node in nodes}
        scale = bool(faults.at_least) and test.kind == "group" and len(nodes) >= faults.at_least
        edges = any(nodes.issuperset(pair) for pair in faults.pairs) or any(leaves.issuperset(path) for path in faults.paths)
        return bool(faults.nodes & nodes or rails or edges or scale)


class UnsteadyFabric(SimulatedFabric):
    """A fabric of which one node fails a share of its tests, by chance."""

    def __init__(self, layout: FabricMap, node: str, share: float, chance: random.Random) -> None:
        super().__init__(layout, InjectedFaults(nodes=frozenset({node})))
        self.node, self.share, self.chance = node, share, chance

    def is_faulty(self, test: FabricTest) -> bool:
        """Return True if the node is in a test and fails it."""
        return self.node in test.nodes and self.chance.random() < self.share


def fabric(nodes: int, per_leaf: int, rails: int = 8) -> FabricMap:
    """Return a fabric of so many nodes with so many on a leaf."""
    names = tuple(f"gpu{number:04d}" for number in range(nodes))
    return FabricMap(nodes=names, leaves=tuple(f"leaf{number // per_leaf:02d}" for number in range(nodes)), rails=rails)


def localised(runner: SimulatedFabric, policy: Policy) -> tuple[History, FaultDiagnosis]:
    """Run a whole localisation."""
    history = begin(runner.layout, policy)
    while (part := next_round(history)).tests:
        done = Round(number=part.number, purpose=part.purpose, tests=part.tests, outcomes=tuple(runner.run(part.tests)))
        history = History(map=history.map, policy=policy, rounds=(*history.rounds, done))
    return history, verdict(history)
