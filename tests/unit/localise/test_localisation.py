"""Localisation on a simulated fabric: each kind of fault by itself, mixtures with noise, the serial mode, and their limits."""

import math
import random
from collections.abc import Sequence

import msgspec
import pytest

from steps.localise import history_encoding
from steps.localise.contract import PARTS, FabricMap, FabricTest, History, HistoryError, Outcome, PartKind, Policy, Round
from steps.localise.rounds import begin, next_round, verdict
from tests.bench.fabric_faults import (
    IndependentNoise,
    InjectedFaults,
    RackNoise,
    SimulatedFabric,
    UnsteadyFabric,
    fabric,
    localised,
    named,
)

EXACT = Policy(noise=0)
SERIAL = Policy(noise=0, mode="serial", kinds=("node",))
SMALL = fabric(64, 8)
NODE, OTHER, PARTNER = "gpu0005", "gpu0017", "gpu0040"

SINGLE = {
    "healthy": (InjectedFaults(), 4),
    "node": (InjectedFaults(nodes=frozenset({NODE})), 4),
    "nodes of one leaf": (InjectedFaults(nodes=frozenset({"gpu0000", "gpu0001", "gpu0002", "gpu0003"})), 5),
    "rail that slows everything": (InjectedFaults(rails=frozenset({(NODE, 3)})), 4),
    "rail that only its own test shows": (InjectedFaults(rails=frozenset({(NODE, 3)}), loud=False), 4),
    "two rails of a node": (InjectedFaults(rails=frozenset({(NODE, 3), (NODE, 4)})), 4),
    "path": (InjectedFaults(paths=frozenset({("leaf01", "leaf04")})), 6),
    "pair": (InjectedFaults(pairs=frozenset({(NODE, OTHER)})), 16),
    "pair on one leaf": (InjectedFaults(pairs=frozenset({("gpu0008", "gpu0009")})), 16),
    "node and pair": (InjectedFaults(nodes=frozenset({PARTNER}), pairs=frozenset({(NODE, OTHER)})), 16),
}
"""Faults, and the most rounds in which an idle machine names them."""


@pytest.mark.parametrize("name", SINGLE)
def test_without_noise_exactly_the_faults_are_named(name: str) -> None:
    faults, most = SINGLE[name]
    _, diagnosis = localised(SimulatedFabric(SMALL, faults), EXACT)
    assert named(diagnosis) == faults.keys()
    assert diagnosis.finished, diagnosis.reason
    assert diagnosis.rounds <= most
    assert diagnosis.undecided == ()
    bad = {node for suspect in diagnosis.suspects if suspect.kind in ("node", "rail") for node in suspect.nodes}
    assert set(diagnosis.cleared) == set(SMALL.nodes) - bad
    assert all(suspect.evidence and suspect.error <= EXACT.alpha for suspect in diagnosis.suspects)


@pytest.mark.parametrize("least", [60, 33, 20, 5])
def test_a_fault_of_scale_is_told_with_its_size(least: int) -> None:
    _, diagnosis = localised(SimulatedFabric(SMALL, InjectedFaults(at_least=least)), EXACT)
    (suspect,) = diagnosis.suspects
    assert suspect.kind == "scale"
    assert suspect.passes_nodes is not None
    assert suspect.at_least_nodes is not None
    assert suspect.passes_nodes < least <= suspect.at_least_nodes
    assert suspect.at_least_nodes - suspect.passes_nodes <= max(1, least // 4)


@pytest.mark.parametrize("seed", range(20))
def test_five_bad_nodes_of_232_take_four_rounds(seed: int) -> None:
    chance, layout = random.Random(seed), fabric(232, 16)
    faults = InjectedFaults(nodes=frozenset(chance.sample(layout.nodes, 5)))
    _, diagnosis = localised(SimulatedFabric(layout, faults), EXACT)
    assert named(diagnosis) == faults.keys()
    assert diagnosis.finished
    assert diagnosis.rounds <= 4


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["independent", "rack"])
def test_mixed_faults_are_named_despite_noise(kind: str, seed: int) -> None:
    chance, layout = random.Random(seed), fabric(96, 12, rails=4)
    nodes, leaves = chance.sample(layout.nodes, 4), sorted(set(layout.leaves))
    faults = InjectedFaults(nodes=frozenset(nodes[:2]), rails=frozenset({(nodes[2], 1)}), paths=frozenset({(leaves[1], leaves[6])}))
    noise = IndependentNoise(0.02, chance) if kind == "independent" else RackNoise(0.02, chance, leaves)
    _, diagnosis = localised(SimulatedFabric(layout, faults, noise), Policy())
    assert named(diagnosis) == faults.keys()
    assert diagnosis.finished
    assert diagnosis.false_alarm <= Policy().alpha


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("size", [32, 64])
def test_a_node_that_fails_now_and_then_is_named_or_in_doubt(size: int, share: float, seed: int) -> None:
    runner = UnsteadyFabric(fabric(size, 8), NODE, share, random.Random(f"{size} {share} {seed}"))
    _, diagnosis = localised(runner, Policy(most_rounds=24))
    assert named(diagnosis) == {("node", NODE)} or (diagnosis.undecided and not diagnosis.suspects)
    assert NODE not in diagnosis.cleared
    assert share < 0.5 or diagnosis.finished
    assert all(suspect.evidence and suspect.error <= Policy().alpha for suspect in diagnosis.suspects)


def test_serial_tests_stay_near_the_bound() -> None:
    layout = fabric(232, 16)
    for bad in range(1, 6):
        tests = []
        for seed in range(20):
            faults = InjectedFaults(nodes=frozenset(random.Random(seed).sample(layout.nodes, bad)))
            history, diagnosis = localised(SimulatedFabric(layout, faults), SERIAL)
            assert named(diagnosis) == faults.keys(), seed
            assert diagnosis.finished
            assert all(len(part.tests) == 1 for part in history.rounds)
            tests.append(diagnosis.tests)
        assert sum(tests) / len(tests) <= 1.2 * math.log2(math.comb(232, bad)), bad


@pytest.mark.parametrize("seed", range(5))
def test_serial_tests_repeat_until_the_noise_is_overcome(seed: int) -> None:
    chance = random.Random(seed)
    faults = InjectedFaults(nodes=frozenset(chance.sample(SMALL.nodes, 2)))
    policy = Policy(mode="serial", kinds=("node",))
    _, diagnosis = localised(SimulatedFabric(SMALL, faults, IndependentNoise(0.02, chance)), policy)
    assert named(diagnosis) == faults.keys()


@pytest.mark.parametrize("kinds", [PARTS, ("node", "pair"), ("path",), ("node", "scale")], ids=str)
def test_serial_tests_are_refused_where_more_than_nodes_may_be_bad(kinds: tuple[PartKind, ...]) -> None:
    history = begin(SMALL, Policy(noise=0, mode="serial", kinds=kinds))
    with pytest.raises(HistoryError, match="serial mode tells bad nodes alone"):
        next_round(history)
    with pytest.raises(HistoryError, match="serial mode tells bad nodes alone"):
        verdict(history)


@pytest.mark.parametrize("policy", [EXACT, SERIAL, Policy()], ids=["idle", "serial", "noise"])
def test_decisions_depend_on_the_history_alone(policy: Policy) -> None:
    """A history that was written and read again leads to the same tests and the same verdict, byte by byte, after each round."""
    runner = SimulatedFabric(SMALL, InjectedFaults(nodes=frozenset({NODE}), rails=frozenset({(OTHER, 2)})))
    history, _ = localised(runner, policy)
    for count in range(len(history.rounds) + 1):
        part = History(map=history.map, policy=policy, rounds=history.rounds[:count])
        again = history_encoding.decode(history_encoding.encode(part))
        assert msgspec.json.encode(next_round(part)) == msgspec.json.encode(next_round(again))
        assert msgspec.json.encode(verdict(part)) == msgspec.json.encode(verdict(again))


def test_tests_of_a_round_can_run_at_the_same_time() -> None:
    faults = InjectedFaults(nodes=frozenset({NODE}), paths=frozenset({("leaf01", "leaf04")}))
    history, _ = localised(SimulatedFabric(SMALL, faults), EXACT)
    for part in history.rounds:
        used: set[tuple[str, int | None]] = set()
        for test in part.tests:
            for node in test.nodes:
                assert (node, test.rail) not in used
                assert test.rail is None or (node, None) not in used
                used.add((node, test.rail))


def test_a_silent_node_is_undecided_and_never_cleared() -> None:
    class Deaf(SimulatedFabric):
        """A fabric of which one node gives no results."""

        def run(self, tests: Sequence[FabricTest]) -> list[Outcome]:
            return [
                msgspec.structs.replace(outcome, result="unknown", figure=None) if NODE in test.nodes else outcome
                for test, outcome in zip(tests, super().run(tests), strict=True)
            ]

    _, diagnosis = localised(Deaf(SMALL, InjectedFaults()), EXACT)
    assert diagnosis.suspects == ()
    assert NODE in diagnosis.undecided
    assert NODE not in diagnosis.cleared
    assert "1 nodes" in diagnosis.reason


def test_nothing_is_cleared_before_the_first_round() -> None:
    diagnosis = verdict(begin(SMALL, EXACT))
    assert diagnosis.cleared == ()
    assert not diagnosis.finished
    assert diagnosis.missed > 0


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_tiny_fabrics_end(count: int, bad: int) -> None:
    layout = fabric(count, 2, rails=0)
    _, diagnosis = localised(SimulatedFabric(layout, InjectedFaults(nodes=frozenset(layout.nodes[:bad]))), EXACT)
    blamed = {node for suspect in diagnosis.suspects for node in suspect.nodes} | set(diagnosis.undecided)
    assert set(layout.nodes[:bad]) <= blamed
    assert bad or not blamed


def test_limits_end_a_localisation_unfinished() -> None:
    policy = Policy(noise=0, most_rounds=1)
    _, diagnosis = localised(SimulatedFabric(SMALL, InjectedFaults(nodes=frozenset({NODE}))), policy)
    assert diagnosis.rounds == 1
    assert not diagnosis.finished
    assert "limit" in diagnosis.reason


def test_the_state_at_1024_nodes_is_small() -> None:
    layout = fabric(1024, 32)
    runner = SimulatedFabric(layout, InjectedFaults(nodes=frozenset(layout.nodes[3:6])))
    history = begin(layout, Policy())
    for _ in range(4):
        part = next_round(history)
        done = Round(number=part.number, purpose=part.purpose, tests=part.tests, outcomes=tuple(runner.run(part.tests)))
        history = History(map=layout, policy=history.policy, rounds=(*history.rounds, done))
    state = history_encoding.encode(history)
    assert sum(len(part.tests) for part in history.rounds) > 8000
    assert len(state) <= 35_000
    assert history_encoding.encode(history_encoding.decode(state)) == state


def test_leaves_of_different_sizes_are_matched_across() -> None:
    names = tuple(f"n{number}" for number in range(30))
    layout = FabricMap(nodes=names, leaves=tuple("a" if number < 15 else "b" if number < 25 else "c" for number in range(30)))
    first = next_round(begin(layout, EXACT))
    leaf = dict(zip(names, layout.leaves, strict=True))
    assert {node for test in first.tests for node in test.nodes} == set(names)
    assert all(leaf[test.nodes[0]] != leaf[test.nodes[1]] for test in first.tests)
