"""Localisation of faulty nodes, rails, pairs and paths: rounds, tests, precision and recall on a simulated fabric, beside peers.

NVIDIA's figures are estimates of its own design record for 232 nodes (ADR-055 of its cluster readiness engine), not measured.
Rows with noise take about 1 s of CPU a seed and row. `--first-seed` lets several runs share the seeds.
"""

import argparse
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import msgspec
from fabric_faults import IndependentNoise, InjectedFaults, RackNoise, SimulatedFabric, fabric, localised, named
from figures import Figures

from steps.localise import history_encoding
from steps.localise.contract import FabricMap, History, Policy, Round
from steps.localise.rounds import begin, next_round, verdict

NODES, PER_LEAF, MOST_BAD = 232, 16, 5
NOISE = 0.02
ROUNDS, SERIAL_RATIO, ACCURACY = 4, 1.2, 0.99
LARGE, DECISION_S, STATE_BYTES = 1024, 1.0, 35_000
PEER_ROUNDS = "NVIDIA diagnose: 7 rounds, 22-57 tests (its own estimates)"
PEER_SERIAL = "NVIDIA diagnose: 1.70 (55 tests for 5 nodes, its own estimate)"
PEER_NOISE = "none published; Minder F1 0.893, on live jobs"
PEER_STATE = "NVIDIA diagnose: 35 kB"
PEER_BYTES = "SuperBench: not idempotent (microsoft/superbenchmark#626)"


@dataclass(frozen=True)
class Score:
    """Result of one seed: rounds, tests, bad nodes, and parts that were named rightly, wrongly, and missed; CPU seconds."""

    rounds: int
    tests: int
    bad: int
    right: int
    wrong: int
    missed: int
    seconds: float


def score(seed_of: Callable[[int], tuple[SimulatedFabric, Policy]], seed: int) -> Score:
    """Return the result of a localisation with the fabric, faults and noise of a seed."""
    runner, policy = seed_of(seed)
    before = time.process_time()
    _, diagnosis = localised(runner, policy)
    spent = time.process_time() - before
    right, truth = named(diagnosis), runner.faults.keys()
    if not diagnosis.finished:
        print(f"seed {seed}: not finished, {diagnosis.reason}", file=sys.stderr)
    return Score(diagnosis.rounds, diagnosis.tests, len(truth), len(right & truth), len(right - truth), len(truth - right), spent)


def bad_nodes(seed: int) -> InjectedFaults:
    """Return up to five bad nodes."""
    chance = random.Random(seed)
    return InjectedFaults(nodes=frozenset(chance.sample(fabric(NODES, PER_LEAF).nodes, chance.randint(1, MOST_BAD))))


def idle(seed: int) -> tuple[SimulatedFabric, Policy]:
    """Return bad nodes without noise, on an idle machine."""
    return SimulatedFabric(fabric(NODES, PER_LEAF), bad_nodes(seed)), Policy(noise=0)


def idle_nodes(seed: int) -> tuple[SimulatedFabric, Policy]:
    """Return bad nodes without noise, on an idle machine, without tests of rails, paths, pairs and scale."""
    return SimulatedFabric(fabric(NODES, PER_LEAF), bad_nodes(seed)), Policy(noise=0, kinds=("node",))


def serial(seed: int) -> tuple[SimulatedFabric, Policy]:
    """Return bad nodes without noise, where tests run one after the other."""
    return SimulatedFabric(fabric(NODES, PER_LEAF), bad_nodes(seed)), Policy(noise=0, mode="serial", kinds=("node",))


def mixed(layout: FabricMap, chance: random.Random) -> InjectedFaults:
    """Return three bad nodes, a bad rail, a bad pair and a bad leaf-leaf path, all of different nodes."""
    nodes = chance.sample(layout.nodes, 6)
    return InjectedFaults(
        nodes=frozenset(nodes[:3]),
        rails=frozenset({(nodes[3], chance.randrange(layout.rails))}),
        pairs=frozenset({(nodes[4], nodes[5])}),
        paths=frozenset({tuple(chance.sample(sorted(set(layout.leaves)), 2))}),  # type: ignore[arg-type]
    )


def independent(seed: int) -> tuple[SimulatedFabric, Policy]:
    """Return mixed faults with independent noise."""
    chance, layout = random.Random(seed), fabric(NODES, PER_LEAF)
    return SimulatedFabric(layout, mixed(layout, chance), IndependentNoise(NOISE, chance)), Policy(noise=NOISE)


def correlated(seed: int) -> tuple[SimulatedFabric, Policy]:
    """Return mixed faults with noise that comes in bursts of racks and drifts."""
    chance, layout = random.Random(seed), fabric(NODES, PER_LEAF)
    faults, leaves = mixed(layout, chance), sorted(set(layout.leaves))
    noise = RackNoise(NOISE, chance, leaves, phase=chance.uniform(0, 2 * math.pi))
    return SimulatedFabric(layout, faults, noise), Policy(noise=NOISE)


def sweep(seed_of: Callable[[int], tuple[SimulatedFabric, Policy]], seeds: Iterable[int]) -> list[Score]:
    """Return the results of all seeds, from a process on each core."""
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        rows = list(seeds)
        return list(pool.map(score, [seed_of] * len(rows), rows, chunksize=4))


def accuracy(figures: Figures, title: str, scores: list[Score], goal: float) -> None:
    """Print precision and recall over all named parts, and the rounds."""
    right = sum(row.right for row in scores)
    figures.at_least(f"{title}: precision", right / max(right + sum(row.wrong for row in scores), 1), goal, "")
    figures.at_least(f"{title}: recall", right / max(right + sum(row.missed for row in scores), 1), goal, "")
    rounds = sorted(row.rounds for row in scores)
    tail = rounds[min(len(rounds) - 1, int(len(rounds) * 0.95))]
    figures.note(f"{title}: rounds", f"median {statistics.median(rounds):g}, 95 % within {tail}, most {rounds[-1]}")
    figures.note(f"{title}: tests, CPU of decisions", _cost(scores))


def _cost(scores: list[Score]) -> str:
    tests = statistics.mean(row.tests for row in scores)
    return f"mean {tests:.0f} tests, {statistics.mean(row.seconds for row in scores):.2f} s of CPU, {len(scores)} seeds"


def small(figures: Figures, seeds: range) -> None:
    """Print the rows of bad nodes without noise."""
    scores = sweep(idle, seeds)
    figures.at_most("idle, 1-5 bad nodes of 232: most rounds", max(row.rounds for row in scores), ROUNDS, "")
    accuracy(figures, "idle, 1-5 bad nodes of 232", scores, 1.0)
    figures.note("  peer", PEER_ROUNDS)
    plain = sweep(idle_nodes, seeds)
    figures.at_most("the same, looking for bad nodes only: most rounds", max(row.rounds for row in plain), ROUNDS, "")
    accuracy(figures, "the same, looking for bad nodes only", plain, 1.0)
    scores = sweep(serial, seeds)
    for bad in range(1, MOST_BAD + 1):
        tests = [row.tests for row in scores if row.bad == bad]
        bound = math.log2(math.comb(NODES, bad))
        if tests:
            mean = statistics.mean(tests)
            figures.at_most(f"serial, {bad} of 232: mean tests / log2 C(232, {bad})", mean / bound, SERIAL_RATIO, "")
            figures.note("  tests, bound", f"mean {mean:.2f}, most {max(tests)}, bound {bound:.2f}")
    accuracy(figures, "serial, 1-5 bad nodes of 232", scores, 1.0)
    figures.note("  peer", PEER_SERIAL)


def noisy(figures: Figures, seeds: range) -> None:
    """Print the rows of mixed faults with noise."""
    for title, seed_of in (("independent noise", independent), ("rack noise with drift", correlated)):
        accuracy(figures, f"mixed faults, {title}", sweep(seed_of, seeds), ACCURACY)
        figures.note("  peer", PEER_NOISE)


def large(figures: Figures, seeds: int) -> None:
    """Print the slowest decision and the largest state at 1,024 nodes, and compare two verdicts from one state."""
    slowest, largest, equal = 0.0, 0, True
    for seed in range(seeds):
        chance, layout = random.Random(seed), fabric(LARGE, 32)
        runner = SimulatedFabric(layout, mixed(layout, chance), IndependentNoise(NOISE, chance))
        history = begin(layout, Policy(noise=NOISE))
        while True:
            before = time.process_time()
            part = next_round(history)
            slowest = max(slowest, time.process_time() - before)
            if not part.tests:
                break
            done = Round(number=part.number, purpose=part.purpose, tests=part.tests, outcomes=tuple(runner.run(part.tests)))
            history = History(map=layout, policy=history.policy, rounds=(*history.rounds, done))
        state = history_encoding.encode(history)
        largest = max(largest, len(state))
        again = history_encoding.decode(state)
        equal = equal and msgspec.json.encode(verdict(history)) == msgspec.json.encode(verdict(again))
    figures.at_most("1,024 nodes: slowest decision, CPU", slowest, DECISION_S, "s")
    figures.at_most("1,024 nodes: largest state", largest, STATE_BYTES, "B")
    figures.note("  peer", PEER_STATE)
    figures.at_least("evidence to verdict twice: equal bytes", float(equal), 1.0, "")
    figures.note("  peer", PEER_BYTES)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="seeds of the rows without noise")
    parser.add_argument("--noisy-seeds", type=int, default=100, help="seeds of each row with noise")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed of all rows")
    parser.add_argument("--only", choices=("small", "noisy", "large"), help="one part")
    arguments = parser.parse_args()
    figures = Figures("localisation")
    first = arguments.first_seed
    for part, measure, count in (("small", small, arguments.seeds), ("noisy", noisy, arguments.noisy_seeds)):
        if arguments.only in (None, part):
            figures.note(f"{part}: seeds", f"{first} to {first + count - 1}")
            measure(figures, range(first, first + count))
    if arguments.only in (None, "large"):
        large(figures, 2)
    figures.exit()


if __name__ == "__main__":
    main()
