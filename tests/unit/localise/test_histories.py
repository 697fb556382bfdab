"""Histories from outside: contradictions raise HistoryError, and bytes that nobody encoded never decode into something else."""

import random

import msgspec
import pytest

from steps.localise import history_encoding
from steps.localise.contract import FabricMap, FabricTest, History, HistoryError, Outcome, Policy, Round
from steps.localise.rounds import begin, next_round, verdict
from tests.bench.fabric_faults import IndependentNoise, InjectedFaults, SimulatedFabric, fabric, localised

LAYOUT = fabric(8, 2, rails=2)
PAIR = FabricTest(id="1.1", kind="pair", nodes=("gpu0000", "gpu0002"))


def _history(*tests: FabricTest, outcomes: tuple[Outcome, ...] = (), number: int = 1) -> History:
    return History(map=LAYOUT, rounds=(Round(number=number, tests=tests, outcomes=outcomes),))


CONTRADICTIONS = {
    "an outcome nobody asked for": (_history(PAIR, outcomes=(Outcome(test="9.9", result="pass"),)), "did not ask for"),
    "two outcomes of a test": (_history(PAIR, outcomes=(Outcome(test="1.1", result="pass"),) * 2), "two outcomes"),
    "a result that is none": (_history(PAIR, outcomes=(Outcome(test="1.1", result="fine"),)), "expected pass, fail or unknown"),  # type: ignore[arg-type]
    "a figure that is no number": (
        _history(PAIR, outcomes=(Outcome(test="1.1", result="pass", figure=float("nan")),)),
        "no number",
    ),
    "a node outside": (_history(FabricTest(id="1.1", kind="pair", nodes=("gpu0000", "../etc"))), "not in the fabric"),
    "a pair with itself": (_history(FabricTest(id="1.1", kind="pair", nodes=("gpu0000", "gpu0000"))), "twice"),
    "a pair of three": (_history(FabricTest(id="1.1", kind="pair", nodes=LAYOUT.nodes[:3])), "3 nodes"),
    "a rail that no node has": (_history(FabricTest(id="1.1", kind="rail", nodes=LAYOUT.nodes[:2], rail=2)), "rail 2"),
    "a pair with a rail": (_history(FabricTest(id="1.1", kind="pair", nodes=LAYOUT.nodes[:2], rail=0)), "rail 0"),
    "a kind of test that is none": (_history(FabricTest(id="1.1", kind="ring", nodes=LAYOUT.nodes[:2])), "kind ring"),  # type: ignore[arg-type]
    "two tests with one id": (_history(PAIR, PAIR), "two tests"),
    "a round in the wrong place": (_history(PAIR, number=2), "numbered from 1"),
}

IMPOSSIBLE = {
    "no node": FabricMap(nodes=(), leaves=()),
    "a leaf too few": FabricMap(nodes=("a", "b"), leaves=("x",)),
    "a node twice": FabricMap(nodes=("a", "a"), leaves=("x", "x")),
    "an empty name": FabricMap(nodes=("",), leaves=("x",)),
    "a long name": FabricMap(nodes=("a" * 254,), leaves=("x",)),
    "too many rails": FabricMap(nodes=("a",), leaves=("x",), rails=65),
}

POLICIES = [
    Policy(alpha=0),
    Policy(beta=0.6),
    Policy(noise=0.4),
    Policy(noise=-0.1),
    Policy(expected=0),
    Policy(expected=float("inf")),
    Policy(kinds=()),
    Policy(most_rounds=0),
]


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused(name: str) -> None:
    history, sentence = CONTRADICTIONS[name]
    for decide in (next_round, verdict):
        with pytest.raises(HistoryError, match=sentence):
            decide(history)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_fabrics_are_refused(name: str) -> None:
    with pytest.raises(HistoryError):
        next_round(begin(IMPOSSIBLE[name]))


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_impossible_policies_are_refused(policy: Policy) -> None:
    with pytest.raises(HistoryError):
        next_round(begin(LAYOUT, policy))


def test_serial_histories_of_another_policy_are_refused() -> None:
    history = _history(PAIR, outcomes=(Outcome(test="1.1", result="fail"),))
    serial = History(map=LAYOUT, policy=Policy(mode="serial", noise=0, kinds=("node",)), rounds=history.rounds)
    with pytest.raises(HistoryError, match="another policy"):
        next_round(serial)


def test_a_history_survives_encoding() -> None:
    chance = random.Random(1)
    runner = SimulatedFabric(LAYOUT, InjectedFaults(nodes=frozenset({"gpu0003"})), IndependentNoise(0.02, chance))
    history, _ = localised(runner, Policy())
    again = history_encoding.decode(history_encoding.encode(history))
    bare = [
        msgspec.structs.replace(part, outcomes=tuple(msgspec.structs.replace(o, figure=None) for o in part.outcomes))
        for part in history.rounds
    ]
    assert again == History(map=history.map, policy=history.policy, rounds=tuple(bare))


def test_unanswered_and_unknown_tests_survive_encoding() -> None:
    tests = tuple(FabricTest(id=f"1.{place}", kind="self", nodes=(name,)) for place, name in enumerate(LAYOUT.nodes, start=1))
    outcomes = (Outcome(test="1.2", result="unknown", repeat=3), Outcome(test="1.5", result="fail"))
    history = History(map=LAYOUT, rounds=(Round(number=1, tests=tests, outcomes=outcomes),))
    assert history_encoding.decode(history_encoding.encode(history)) == history


@pytest.mark.parametrize("seed", range(200))
def test_damaged_states_are_refused_or_still_consistent(seed: int) -> None:
    chance = random.Random(seed)
    history, _ = localised(SimulatedFabric(LAYOUT, InjectedFaults()), Policy(noise=0))
    state = bytearray(history_encoding.encode(history))
    for _ in range(chance.randint(1, 8)):
        state[chance.randrange(len(state))] = chance.randrange(256)
    kept = len(state) if seed % 2 else chance.randint(1, len(state))
    try:
        diagnosis = verdict(history_encoding.decode(bytes(state[:kept])))
    except HistoryError:
        return
    assert not diagnosis.cleared or kept == len(state)


def test_foreign_bytes_are_refused() -> None:
    for data in (b"", b"\xc0", b"{}", bytes(5 << 20), msgspec.msgpack.encode([2, [], [], b"", 0, {}, []])):
        with pytest.raises(HistoryError):
            history_encoding.decode(data)
