"""Small fabrics, such as a repaired node with two good partners: each single fault is named, and every localisation ends soon."""

import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from steps.localise.contract import FabricMap, FabricTest, FaultDiagnosis, History, Outcome, Policy
from steps.localise.rounds import begin, next_round, verdict
from tests.bench.fabric_faults import IndependentNoise, InjectedFaults, SimulatedFabric, UnsteadyFabric, localised, named

KINDS = ("none", "node", "two nodes", "rail", "quiet rail", "pair", "path", "scale")
NOISES = (0.0, 0.005, 0.02)
MOST_ROUNDS = {0.0: 10, 0.005: 20, 0.02: 25}
"""Most rounds by the policy's noise."""
TINY = [(nodes, leaves, rails) for nodes in (2, 3, 4) for leaves in range(1, nodes + 1) for rails in (0, 2, 8)]
SMALL = [(5, 2, 2), (6, 4, 1), (7, 3, 2), (8, 2, 0), (9, 4, 0), (16, 4, 0)]
Key = tuple[object, ...]


def _layout(nodes: int, leaves: int, rails: int) -> FabricMap:
    names = tuple(f"gpu{place:04d}" for place in range(nodes))
    return FabricMap(nodes=names, leaves=tuple(f"leaf{place * leaves // nodes:02d}" for place in range(nodes)), rails=rails)


def _faults(kind: str, layout: FabricMap, chance: random.Random) -> InjectedFaults | None:
    """Return faults of a kind; None if the fabric has no such part."""
    nodes, leaves = layout.nodes, sorted(set(layout.leaves))
    rail = (chance.choice(nodes), chance.randrange(max(layout.rails, 1)))
    if kind == "two nodes" and len(nodes) >= 4:
        return InjectedFaults(nodes=frozenset(chance.sample(nodes, 2)))
    if kind in ("rail", "quiet rail") and layout.rails > 1:
        return InjectedFaults(rails=frozenset({rail}), loud=kind == "rail")
    if kind == "path" and len(leaves) > 1:
        return InjectedFaults(paths=frozenset({tuple(sorted(chance.sample(leaves, 2)))}))  # type: ignore[arg-type]
    if kind == "scale" and len(nodes) > 2:
        return InjectedFaults(at_least=chance.randint(3, len(nodes)))
    first, second = sorted(chance.sample(nodes, 2))
    plain = {
        "none": InjectedFaults(),
        "node": InjectedFaults(nodes=frozenset({first})),
        "pair": InjectedFaults(pairs=frozenset({(first, second)})),
    }
    return plain.get(kind)


def _right(layout: FabricMap, faults: InjectedFaults) -> set[Key]:
    """Return the part that tests can tell: of two nodes their pair, and no path where it is a pair or all the way to a node."""
    if len(layout.nodes) == 2 and faults != InjectedFaults():
        return {("pair", *layout.nodes)}
    for path in faults.paths:
        ends = sorted(
            ([node for node, leaf in zip(layout.nodes, layout.leaves, strict=True) if leaf == end] for end in path), key=len
        )
        if len(ends[1]) == 1:
            return {("pair", *sorted((ends[0][0], ends[1][0])))}
        if len(ends[0]) == 1 and len(set(layout.leaves)) == 2:
            return {("node", ends[0][0])}
    return faults.keys()


def _check(layout: FabricMap, kind: str, seed: str, noise: float, real: float) -> None:
    """Localise one fault, and check what is named and that the localisation ended in time."""
    faults = _faults(kind, layout, random.Random(seed))
    if faults is None:
        return
    fabric = SimulatedFabric(layout, faults, IndependentNoise(real, random.Random(seed)) if real else None)
    _, diagnosis = localised(fabric, Policy(noise=noise))
    what = f"seed {seed!r}, noise {noise}: {diagnosis}"
    assert diagnosis.finished, what
    assert diagnosis.rounds <= MOST_ROUNDS[noise], what
    assert named(diagnosis) == _right(layout, faults), what
    assert diagnosis.undecided == (), what
    assert diagnosis.false_alarm <= Policy().alpha, what


@pytest.mark.parametrize("shape", TINY, ids=str)
def test_tiny_fabrics_name_each_single_fault(shape: tuple[int, int, int]) -> None:
    layout = _layout(*shape)
    for kind in KINDS:
        _check(layout, kind, f"{shape} {kind}", random.Random(f"{shape} {kind}").choice(NOISES), 0.0)


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_small_fabrics_name_each_single_fault(shape: tuple[int, int, int]) -> None:
    layout = _layout(*shape)
    for place, kind in enumerate(KINDS):
        _check(layout, kind, f"{shape} {kind}", NOISES[(place + shape[0]) % 3], 0.0)


@pytest.mark.parametrize("shape", [(2, 1, 2), (3, 1, 2), (3, 3, 0), (4, 2, 2), (8, 2, 0)], ids=str)
def test_small_fabrics_are_right_despite_noise(shape: tuple[int, int, int]) -> None:
    layout = _layout(*shape)
    for kind in KINDS:
        _check(layout, kind, f"{shape} {kind} noise", 0.02, 0.02)


def _diagnosed(layout: FabricMap, faults: InjectedFaults, policy: Policy) -> FaultDiagnosis:
    _, diagnosis = localised(SimulatedFabric(layout, faults), policy)
    return diagnosis


def test_two_nodes_cannot_tell_which_of_them_is_bad() -> None:
    layout = _layout(2, 1, 8)
    diagnosis = _diagnosed(layout, InjectedFaults(nodes=frozenset(layout.nodes[:1])), Policy())
    assert named(diagnosis) == {("pair", *layout.nodes)}
    assert "two nodes cannot tell" in diagnosis.reason


def test_two_bad_nodes_of_three_stay_undecided() -> None:
    layout = _layout(3, 1, 0)
    for noise in NOISES:
        diagnosis = _diagnosed(layout, InjectedFaults(nodes=frozenset(layout.nodes[:2])), Policy(noise=noise))
        assert diagnosis.suspects == ()
        assert diagnosis.undecided == layout.nodes
        assert diagnosis.finished
        assert "no further test" in diagnosis.reason


def test_a_whole_bad_leaf_is_not_taken_for_its_path() -> None:
    layout = _layout(10, 2, 0)
    faults = InjectedFaults(nodes=frozenset(layout.nodes[5:]))
    diagnosis = _diagnosed(layout, faults, Policy(noise=0))
    assert named(diagnosis) == faults.keys()
    assert diagnosis.undecided == ()


def test_a_round_is_not_repeated_without_noise() -> None:
    for kind in KINDS:
        layout = _layout(8, 2, 0)
        faults = _faults(kind, layout, random.Random(kind))
        assert faults is not None or layout.rails == 0
        history, _ = localised(SimulatedFabric(layout, faults or InjectedFaults()), Policy(noise=0))
        tests = Counter((test.kind, test.nodes, test.rail) for part in history.rounds for test in part.tests)
        assert max(tests.values()) == 1, kind


class _Moody(SimulatedFabric):
    """A fabric on which half of the tests fail by chance, whatever their nodes."""

    def run(self, tests: Sequence[FabricTest]) -> list[Outcome]:
        chance = random.Random(repr(tests))
        return [Outcome(test=test.id, result=chance.choice(("pass", "fail"))) for test in tests]


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_contradictions_end(nodes: int, noise: float) -> None:
    _, diagnosis = localised(_Moody(_layout(nodes, 2, 0), InjectedFaults()), Policy(noise=noise))
    assert diagnosis.finished
    assert diagnosis.rounds <= 40


@pytest.mark.parametrize(("share", "seed"), [(0.3, 0), (0.3, 1), (0.5, 0), (0.5, 1), (0.7, 0), (0.7, 1)])
def test_a_node_that_fails_now_and_then_is_never_cleared(share: float, seed: int) -> None:
    layout = _layout(8, 2, 0)
    bad = layout.nodes[3]
    fabric = UnsteadyFabric(layout, bad, share, random.Random(f"{share} {seed}"))
    history, diagnosis = localised(fabric, Policy(kinds=("node", "pair", "path")))
    results = [outcome.result for part in history.rounds for outcome in part.outcomes]
    assert named(diagnosis) <= {("node", bad)}
    assert results.count("fail") < 2 or bad not in diagnosis.cleared
    assert diagnosis.undecided in ((), (bad,))
    assert share < 0.7 or named(diagnosis) == {("node", bad)}


def test_two_failures_that_no_part_explains_are_told() -> None:
    """The history of a node that failed twice of nine, which may be noise: the node is in doubt, and its partners are not."""
    layout, policy = _layout(4, 1, 0), Policy(most_rounds=9)
    history = begin(layout, policy)
    for number in range(9):
        bad = number in (0, 5)
        part = msgspec.structs.replace(next_round(begin(layout, policy)), number=number + 1)
        first = FabricTest(id="1", kind="pair", nodes=(layout.nodes[0], layout.nodes[1 + number % 3]))
        second = FabricTest(id="2", kind="pair", nodes=tuple(node for node in layout.nodes if node not in first.nodes))
        outcomes = (Outcome(test="1", result="fail" if bad else "pass"), Outcome(test="2", result="pass"))
        part = msgspec.structs.replace(part, tests=(first, second), outcomes=outcomes)
        history = History(map=layout, policy=policy, rounds=(*history.rounds, part))
    diagnosis = verdict(history)
    assert diagnosis.suspects == ()
    assert diagnosis.undecided == layout.nodes[:1]
    assert diagnosis.cleared == layout.nodes[1:]


def test_two_nodes_that_never_passed_are_not_cleared() -> None:
    layout = _layout(2, 1, 0)
    diagnosis = _diagnosed(layout, InjectedFaults(nodes=frozenset(layout.nodes[:1])), Policy())
    assert diagnosis.cleared == ()
    assert diagnosis.undecided == ()
    assert named(diagnosis) == {("pair", *layout.nodes)}


@pytest.mark.parametrize(("nodes", "rails"), [(3, 2), (4, 0), (5, 0), (8, 0), (16, 0)])
def test_a_silent_node_takes_no_other_with_it(nodes: int, rails: int) -> None:
    layout, policy = _layout(nodes, 1, rails), Policy()
    history, runner = begin(layout, policy), SimulatedFabric(layout, InjectedFaults())
    while (planned := next_round(history)).tests:
        heard = runner.run(planned.tests)
        outcomes = tuple(
            Outcome(test=test.id, result="unknown") if layout.nodes[-1] in test.nodes else outcome
            for test, outcome in zip(planned.tests, heard, strict=True)
        )
        history = History(map=layout, policy=policy, rounds=(*history.rounds, msgspec.structs.replace(planned, outcomes=outcomes)))
    diagnosis = verdict(history)
    assert diagnosis.finished
    assert diagnosis.undecided == layout.nodes[-1:]
    assert diagnosis.cleared == layout.nodes[:-1]
