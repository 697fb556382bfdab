"""Trials of a history: its outcomes joined to their tests, by index of node and leaf, after the history was checked."""

import functools
import math
import operator
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from steps.localise.contract import (
    LONGEST_NAME,
    MOST_NODES,
    MOST_RAILS,
    PARTS,
    FabricMap,
    FabricTest,
    History,
    HistoryError,
    Kind,
    Outcome,
    Policy,
    Round,
)

LEAST_NODES: dict[str, int] = {"pair": 2, "group": 2, "rail": 2, "self": 1}


class Trial(NamedTuple):
    """A test that gave a result: `mask` has the bit of each node, `number` is the round, `id` the test's id.

    `pair` has the nodes of a test of two nodes, lower first; it is empty for others. `parts` are the numbers of the nodes or rails
    and of the path that a test of one or two nodes uses (see `IndexedFabric`). `places` are its leaves in this round, each once.
    """

    id: str
    kind: Kind
    nodes: tuple[int, ...]
    mask: int
    rail: int
    failed: bool
    number: int
    pair: tuple[int, ...]
    parts: tuple[int, ...]
    places: tuple[int, ...]


class IndexedFabric:
    """A checked fabric map by index: leaf of each node, bit mask of each leaf, and the index of each name.

    Parts are numbered: first the nodes, then the rails of each node, then the paths, by their higher leaf and then by their lower.
    """

    def __init__(self, layout: FabricMap) -> None:
        check_map(layout)
        self.names = layout.nodes
        self.rails = layout.rails
        self.leaf_names = tuple(dict.fromkeys(layout.leaves))
        numbers = {name: number for number, name in enumerate(self.leaf_names)}
        self.leaf = [numbers[name] for name in layout.leaves]
        self.index = {name: number for number, name in enumerate(layout.nodes)}
        self.leaf_masks = [0] * len(self.leaf_names)
        for node, leaf in enumerate(self.leaf):
            self.leaf_masks[leaf] |= 1 << node
        self.first_path = len(self.names) * (1 + self.rails)

    @property
    def size(self) -> int:
        """Return the number of nodes."""
        return len(self.names)

    @property
    def everyone(self) -> int:
        """Return the mask of all nodes."""
        return (1 << self.size) - 1

    @property
    def first_pair(self) -> int:
        """Return the number after that of the last path, from which pairs of nodes may be numbered."""
        leaves = len(self.leaf_masks)
        return self.first_path + leaves * (leaves - 1) // 2

    def number_of_path(self, low: int, high: int) -> int:
        """Return the number of the path between two leaves."""
        return self.first_path + high * (high - 1) // 2 + low

    def path_of_number(self, number: int) -> tuple[int, int]:
        """Return the leaves of a path by its number, lower first."""
        place = number - self.first_path
        high = (1 + math.isqrt(1 + 8 * place)) // 2
        return place - high * (high - 1) // 2, high

    def path(self, first: int, second: int) -> tuple[int, int] | None:
        """Return the leaves between which two nodes exchange data, lower first; None within one leaf."""
        low, high = self.leaf[first], self.leaf[second]
        return None if low == high else (low, high) if low < high else (high, low)

    def parts(self, pair: tuple[int, ...], rail: int) -> tuple[int, ...]:
        """Return the numbers of the parts that a test of two nodes, lower first, uses: over all rails, or over the one `rail`."""
        first, second = pair
        low, high = self.leaf[first], self.leaf[second]
        if rail >= 0:
            first, second = self.size + first * self.rails + rail, self.size + second * self.rails + rail
        if low == high:
            return first, second
        low, high = (low, high) if low < high else (high, low)
        return first, second, self.number_of_path(low, high)


def members(mask: int) -> list[int]:
    """Return the nodes of a mask, ascending."""
    text = bin(mask)[:1:-1]
    nodes, at = [], text.find("1")
    while at >= 0:
        nodes.append(at)
        at = text.find("1", at + 1)
    return nodes


def check_map(layout: FabricMap) -> None:
    """Raise HistoryError unless the fabric has unique, bounded names and a leaf for each node."""
    if not 1 <= len(layout.nodes) <= MOST_NODES:
        raise HistoryError(f"a fabric has 1 to {MOST_NODES} nodes, not {len(layout.nodes)}")
    if len(layout.nodes) != len(layout.leaves):
        raise HistoryError(f"{len(layout.nodes)} nodes but {len(layout.leaves)} leaves: name the leaf of each node")
    if len(set(layout.nodes)) != len(layout.nodes):
        raise HistoryError("a node is in the fabric twice: name each once")
    if not all(0 < len(name) <= LONGEST_NAME for name in (*layout.nodes, *layout.leaves)):
        raise HistoryError(f"names of nodes and leaves have 1 to {LONGEST_NAME} characters")
    if not 0 <= layout.rails <= MOST_RAILS:
        raise HistoryError(f"a node has 0 to {MOST_RAILS} rails, not {layout.rails}")


def check_policy(policy: Policy) -> None:
    """Raise HistoryError unless error rates and limits are possible."""
    rates = {"alpha": policy.alpha, "beta": policy.beta}
    for name, rate in rates.items():
        if not 0 < rate < 0.5:
            raise HistoryError(f"{name} is {rate}, expected a probability between 0 and 0.5")
    if not 0 <= policy.noise <= 0.25:
        raise HistoryError(f"noise is {policy.noise}, expected 0 to 0.25: above that, mend the tests first")
    if not (math.isfinite(policy.expected) and policy.expected > 0):
        raise HistoryError("expected is the number of bad nodes to expect: a number above 0")
    if not policy.kinds or not set(policy.kinds) <= set(PARTS):
        raise HistoryError(f"kinds are some of {', '.join(PARTS)}")
    if policy.mode == "serial" and set(policy.kinds) != {"node"}:
        raise HistoryError(f"serial mode tells bad nodes alone, not {', '.join(policy.kinds)}: ask for kinds node, or mode idle")
    if policy.most_rounds < 1 or policy.most_tests < 1:
        raise HistoryError("most_rounds and most_tests are at least 1")


class RecentRounds:
    """Trials of the rounds of the last history, by identity of the round: a history grows by one round from call to call.

    Rounds are frozen, and kept here with their trials, so no other round takes over the identity of one that is known.
    """

    def __init__(self) -> None:
        self._state: tuple[FabricMap | None, dict[int, tuple[Round, tuple[Trial, ...]]]] = (None, {})

    def trials(self, history: History, fabric: IndexedFabric) -> list[Trial]:
        """Return the trials of all rounds, in order."""
        layout, known = self._state
        known = known if layout is history.map else {}
        rounds: dict[int, tuple[Round, tuple[Trial, ...]]] = {}
        shown: list[Trial] = []
        for number, part in enumerate(history.rounds, start=1):
            if part.number != number:
                raise HistoryError(f"round {part.number} stands in place {number}: rounds are numbered from 1")
            row = known.get(id(part)) or (part, tuple(_shown(part, _tests(part, fabric), fabric)))
            rounds[id(part)] = row
            shown += row[1]
        self._state = (history.map, rounds)
        return shown


_RECENT = RecentRounds()


def trials(history: History, fabric: IndexedFabric) -> list[Trial]:
    """Return what the history's tests showed, in order. Unknown results are left out.

    HistoryError is raised for outcomes of tests that no round has, two outcomes of one test, and tests of unknown nodes.
    """
    check_policy(history.policy)
    return _RECENT.trials(history, fabric)


def passing_nodes(shown: Iterable[Trial]) -> int:
    """Return the mask of the nodes that passed at least one test."""
    mask = 0
    for trial in shown:
        mask |= 0 if trial.failed else trial.mask
    return mask


def _shown(part: Round, tests: dict[str, tuple[FabricTest, tuple[int, ...], int]], fabric: IndexedFabric) -> Iterator[Trial]:
    answered: set[str] = set()
    number, base, leaf = part.number, part.number * len(fabric.leaf_masks), fabric.leaf
    for outcome in part.outcomes:
        if outcome.test not in tests:
            raise HistoryError(f"round {number} has an outcome of test {outcome.test[:40]!r}, which it did not ask for")
        if outcome.test in answered:
            raise HistoryError(f"round {number} has two outcomes of test {outcome.test[:40]!r}")
        answered.add(outcome.test)
        _check_outcome(outcome)
        if outcome.result != "unknown":
            test, nodes, mask = tests[outcome.test]
            rail = -1 if test.rail is None else test.rail
            failed = outcome.result == "fail"
            pair = () if len(nodes) != 2 else nodes if nodes[0] < nodes[1] else nodes[::-1]
            if test.kind == "group":
                places = tuple([base + place for place, covered in enumerate(fabric.leaf_masks) if covered & mask])
                parts: tuple[int, ...] = ()
            else:
                places = tuple(dict.fromkeys([base + leaf[node] for node in nodes]))
                parts = fabric.parts(pair, rail) if pair else nodes
            yield Trial(test.id, test.kind, nodes, mask, rail, failed, number, pair, parts, places)


def _check_outcome(outcome: Outcome) -> None:
    if outcome.result not in ("pass", "fail", "unknown"):
        raise HistoryError(f"test {outcome.test[:40]!r} has result {outcome.result!r}, expected pass, fail or unknown")
    if outcome.figure is not None and not math.isfinite(outcome.figure):
        raise HistoryError(f"test {outcome.test[:40]!r} has a figure that is no number")


def _tests(part: Round, fabric: IndexedFabric) -> dict[str, tuple[FabricTest, tuple[int, ...], int]]:
    """Return the tests of a round by id, with the indices and the mask of their nodes."""
    tests: dict[str, tuple[FabricTest, tuple[int, ...], int]] = {}
    # tests of all rails of two nodes share the mask, which takes a kilobyte in a large fabric
    masks: dict[tuple[int, ...], int] = {}
    for test in part.tests:
        try:
            nodes = tuple([fabric.index[name] for name in test.nodes])
        except KeyError as error:
            raise HistoryError(
                f"test {test.id[:40]!r} names node {str(error.args[0])[:60]!r}, which is not in the fabric"
            ) from None
        if nodes not in masks:
            masks[nodes] = functools.reduce(operator.or_, [1 << node for node in nodes], 0)
        mask = masks[nodes]
        least = LEAST_NODES.get(test.kind, 0)
        right = len(nodes) >= least and (test.kind == "group" or len(nodes) == least)
        if not least or not right or mask.bit_count() != len(nodes):
            raise HistoryError(f"test {test.id[:40]!r} of kind {test.kind} has {len(nodes)} nodes, or one of them twice")
        if (test.kind == "rail") != (test.rail is not None) or (test.rail is not None and not 0 <= test.rail < fabric.rails):
            raise HistoryError(f"test {test.id[:40]!r} has rail {test.rail}, but nodes have {fabric.rails} rails")
        if test.id in tests:
            raise HistoryError(f"two tests of round {part.number} have the id {test.id[:40]!r}")
        tests[test.id] = (test, nodes, mask)
    return tests
