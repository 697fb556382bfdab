"""Rounds of one test each, as few tests as possible: halving by probability, for bad nodes among many.

Each test asks for a group that passes with a probability near one half, given all results so far and a prior on the number of bad
nodes. That is Sobel and Groll's nested procedure with an exchangeable prior instead of independent nodes: the number of bad nodes
need not be known. A group passes only if all of its nodes are good. With noise, a group is repeated until its result is sure.

Halving blames nodes for every failure, so a policy that looks for other parts is refused: a pair or path would name innocent nodes.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from steps.localise.contract import FabricTest, FaultDiagnosis, History, HistoryError, Kind, Round, Suspect
from steps.localise.fabric_belief import EXACT
from steps.localise.propagation import probability, weight
from steps.localise.trials import IndexedFabric, Trial, trials

NONE_BAD = 0.05
"""Prior probability that no node is bad: localisation begins when something failed."""
MOST_REPEATS = 40
"""A group whose repeats contradict each other so often leaves the localisation unfinished."""
LEAST_PRIOR = 1e-9
"""Prior probability of each number of bad nodes beyond those that are expected."""
FEWEST_TERMS = 3
"""Terms that sums over numbers of bad nodes have at least."""


class Splitting:
    """State of the procedure after a history: good and bad nodes, a group known to hold a bad one, and nodes not known at all."""

    def __init__(self, history: History) -> None:
        self.fabric = IndexedFabric(history.map)
        self.policy = history.policy
        self.number = len(history.rounds) + 1
        self.free = list(range(self.fabric.size))
        self.suspect: list[int] = []
        self.good: list[int] = []
        self.bad: dict[int, tuple[float, tuple[str, ...]]] = {}
        self.errors = 0.0
        self.stuck = False
        self._replay(trials(history, self.fabric))

    @property
    def finished(self) -> bool:
        """Return True if every node is known to be good or bad."""
        return not self.free and not self.suspect

    def group(self) -> list[int]:
        """Return the nodes whose test tells most: the first ones of the suspect group, or of the unknown nodes."""
        free, size, prior = len(self.free), len(self.suspect), (self.fabric.size, self.policy.expected, len(self.bad))
        if size:
            whole = _suspect_mass(*prior, free, size, 0)
            return self.suspect[: _nearest_half(size - 1, lambda part: _suspect_mass(*prior, free, size, part) / whole)]
        whole = _free_mass(*prior, free)
        return self.free[: _nearest_half(free, lambda part: _free_mass(*prior, free - part) / whole)]

    def next_test(self) -> tuple[int, ...]:
        """Return the nodes of the next test; a single node gets a good partner, so that its links are used."""
        group = self.group()
        return tuple(sorted((*group, self.good[0]))) if len(group) == 1 and self.good else tuple(group)

    def _replay(self, shown: Sequence[Trial]) -> None:
        place = 0
        while place < len(shown) and not self.finished:
            expected, odds, evidence = set(self.next_test()), 0.0, list[str]()
            decided = False
            while place < len(shown) and not decided:
                trial = shown[place]
                if set(trial.nodes) != expected:
                    raise HistoryError(f"test {trial.id} is not the one that this history leads to: it was made by another policy")
                size = weight(self.policy.noise or EXACT)
                odds += size if trial.failed else -size
                evidence += [trial.id] if trial.failed else []
                place += 1
                decided = odds >= self._fails or odds <= self._passes
                self.stuck = len(evidence) > MOST_REPEATS
            if decided:
                self._split(self.group(), odds, tuple(evidence))

    @property
    def _fails(self) -> float:
        bound = self.policy.alpha / 8
        return math.log((1 - self.policy.beta) / bound) if self.policy.noise else 0.0

    @property
    def _passes(self) -> float:
        return math.log(self.policy.beta / (1 - self.policy.alpha)) if self.policy.noise else 0.0

    def _split(self, group: list[int], odds: float, evidence: tuple[str, ...]) -> None:
        """Take over the result of a group: odds above 0 mean that it holds a bad node."""
        self.errors += probability(-abs(odds))
        size = len(group)
        if self.suspect:
            rest = self.suspect[size:]
            if odds > 0:
                # a bad node in the group explains the suspicion: nothing is known of the rest any more
                self.suspect, self.free, self.evidence = group, rest + self.free, evidence
            else:
                self.suspect, self.good = rest, self.good + group
        else:
            self.free = self.free[size:]
            if odds > 0:
                self.suspect, self.evidence = group, evidence
            else:
                self.good += group
        if len(self.suspect) == 1:
            self.bad[self.suspect[0]] = (probability(-abs(odds)), self.evidence[:16])
            self.suspect = []

    evidence: tuple[str, ...] = ()


def serial_round(history: History) -> Round:
    """Return the next test as a round of its own; without tests, every node is known or repeats contradict each other."""
    state = Splitting(history)
    if state.finished or state.stuck:
        return Round(number=state.number)
    nodes = state.next_test()
    kind: Kind = "self" if len(nodes) == 1 else "pair" if len(nodes) == 2 else "group"
    names = tuple(state.fabric.names[node] for node in nodes)
    return Round(
        number=state.number,
        purpose="halving by probability",
        tests=(FabricTest(id=f"{state.number}.1", kind=kind, nodes=names),),
    )


def serial_verdict(history: History) -> FaultDiagnosis:
    """Return the nodes that are named and cleared by serial tests."""
    state = Splitting(history)
    names = state.fabric.names
    suspects = tuple(
        Suspect(kind="node", nodes=(names[node],), error=round(error, 12), evidence=evidence)
        for node, (error, evidence) in sorted(state.bad.items())
    )
    undecided = sorted((*state.free, *state.suspect))
    return FaultDiagnosis(
        suspects=suspects,
        cleared=tuple(names[node] for node in sorted(state.good)),
        undecided=tuple(names[node] for node in undecided),
        rounds=len(history.rounds),
        tests=sum(len(part.tests) for part in history.rounds),
        false_alarm=round(min(state.errors, 1.0), 9),
        missed=round(min(state.errors, 1.0), 9),
        noise=float(history.policy.noise),
        finished=state.finished,
        reason=_reason(state),
    )


def _reason(state: Splitting) -> str:
    """Return why a verdict is not final, or what it leaves open; empty if nothing."""
    if state.stuck:
        return "tests contradict each other"
    return "" if state.finished else "tests are left"


def _nearest_half(most: int, passes: Callable[[int], float]) -> int:
    """Return the size from 1 to `most` that passes with the probability nearest to one half; larger groups pass less often."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if passes(middle) > 0.5:
            low = middle + 1
        else:
            high = middle
    return min((size for size in (low - 1, low) if 1 <= size <= most), key=lambda size: (abs(passes(size) - 0.5), size))


@lru_cache(maxsize=64)
def _weights(size: int, expected: float) -> tuple[float, ...]:
    """Return the log prior of each single set of bad nodes, by the number of nodes in it: geometric, with a share for none."""
    ratio = expected / (expected + 3)
    chances = [NONE_BAD]
    while len(chances) <= size and chances[-1] > LEAST_PRIOR:
        chances.append((1 - NONE_BAD) * (1 - ratio) * ratio ** (len(chances) - 1))
    # more bad nodes than these stay possible, each number with the least weight
    chances += [LEAST_PRIOR] * (size + 1 - len(chances))
    return tuple(math.log(chance) - math.log(math.comb(size, bad)) for bad, chance in enumerate(chances))


@lru_cache(maxsize=65536)
def _free_mass(size: int, expected: float, bad: int, free: int) -> float:
    """Return the weight of all ways in which `free` unknown nodes may be bad, if `bad` nodes are known already."""
    return _mass(size, expected, bad, lambda more: math.comb(free, more), range(free + 1))


@lru_cache(maxsize=65536)
def _suspect_mass(size: int, expected: float, bad: int, free: int, suspects: int, part: int) -> float:
    """Return the weight of all ways in which at least one suspect is bad and the first `part` suspects are good."""
    left = free + suspects - part
    return _mass(size, expected, bad, lambda more: math.comb(left, more) - math.comb(free, more), range(1, left + 1))


def _mass(size: int, expected: float, bad: int, ways: Callable[[int], int], numbers: range) -> float:
    """Return the sum over numbers of further bad nodes, up to where terms no longer count, scaled by the weight of `bad` nodes."""
    weights = _weights(size, expected)
    total = 0.0
    for more in numbers:
        term = math.exp(math.log(ways(more)) + weights[bad + more] - weights[bad])
        total += term
        if more > FEWEST_TERMS and term < total * 1e-12:
            break
    return total
