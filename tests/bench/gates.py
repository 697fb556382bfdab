"""Gates that judge every node of a fleet, on 5,000 nodes grown from their passing cases: CPU time and memory of one decision.

Each is measured on a healthy fleet and on one with half of its rows missing, which takes other paths through the gate.
"""

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
from figures import Figures

from tests.gates import grown

NODES, LIMIT_SECONDS, LIMIT_MIB = 5000, 0.2, 100
TRIES = 5


def least_cpu(decide: Callable[[], object]) -> float:
    """Least CPU seconds of a decision among some tries."""
    best = float("inf")
    for _ in range(TRIES):
        began = time.process_time()
        decide()
        best = min(best, time.process_time() - began)
    return best


def peak_mib(decide: Callable[[], object]) -> float:
    """Most memory that a decision takes at one time, in MiB, without its observation."""
    tracemalloc.start()
    decide()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (1 << 20)


def halved(observation: Any, count: int) -> Any:
    """An observation whose longest lists have lost every second row."""
    if isinstance(observation, tuple):
        return tuple(halved(row, count) for row in (observation[::2] if len(observation) >= count else observation))
    if isinstance(observation, msgspec.Struct):
        changes = {name: halved(getattr(observation, name), count) for name in observation.__struct_fields__}
        return msgspec.structs.replace(observation, **changes)
    return observation


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of the fleet")
    parser.add_argument("--gate", action="append", help="only this gate (may be repeated)")
    chosen = parser.parse_args()
    figures = Figures(f"gates on {chosen.nodes:,} nodes")
    for gate, path in grown.gates_of_nodes().items():
        if chosen.gate and gate not in chosen.gate:
            continue
        case = grown.grow(path, chosen.nodes)
        verdict = case.decide()
        figures.at_least(f"{gate}: nodes that pass", verdict.passed_nodes, chosen.nodes, "")
        figures.at_most(f"{gate}: CPU", least_cpu(case.decide), LIMIT_SECONDS, "s")
        half = msgspec.structs.replace(case, seen=halved(case.seen, chosen.nodes))
        figures.at_most(f"{gate}: CPU, half of the rows missing", least_cpu(half.decide), LIMIT_SECONDS, "s")
        figures.at_most(f"{gate}: memory", peak_mib(case.decide), LIMIT_MIB, "MiB")
    for gate, what in grown.FEW.items():
        figures.note(f"{gate}", f"judges {what}")
    figures.exit()


if __name__ == "__main__":
    main()
