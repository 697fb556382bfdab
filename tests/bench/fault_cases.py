"""Measure one fault case on a real API server: restore the snapshot before its stage, run the stage, get the verdict.

Delays have no share of chance, as in `test_same_verdicts`. `faults.py` measures the same on the emulated one. Needs what
`tests/cluster` needs (root on Linux, its programs).
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from figures import Figures
from real_server import ControlPlane, able, serving

from tests.unit.rehearsal.faults.specs import needed, spec_for
from tests.unit.rehearsal.stage_bench import StageBench, stage_bench
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import ExistingServer
from workflows.stages import ORDER

LIMIT = 10.0


def chosen(names: Iterable[str], every: bool) -> list[Fault]:
    """The faults of these names, or all; else the first of each stage that the default example can have."""
    if every or names:
        return [fault for fault in fault_registry.faults() if fault.stage in ORDER and (every or fault.name in names)]
    fitting = [fault for fault in fault_registry.faults() if not needed(fault)]
    return [next(fault for fault in fitting if fault.stage == stage) for stage in ORDER if any(f.stage == stage for f in fitting)]


def walk(plane: ControlPlane, needs: str, faults: list[Fault], folder: Path) -> Iterator[tuple[Fault, float, bool]]:
    """Each fault with its seconds, and whether its gate caught it; healthy from stage to stage."""
    existing = RehearsalOptions(existing=ExistingServer(kubeconfig=plane.kubeconfig), jitter=0.0)
    last = max(ORDER.index(fault.stage) for fault in faults)
    with stage_bench(spec_for(needs), folder, existing, plane) as place:
        for stage in ORDER[: last + 1]:
            mine, before = [fault for fault in faults if fault.stage == stage], place.snapshot()
            for fault in mine:
                began = time.perf_counter()
                place.restore(before, [fault.name])
                found = place.run(stage).verdict
                seconds = time.perf_counter() - began
                yield fault, seconds, found is not None and not found.is_pass and found.gate == fault.gate
            if mine:
                place.restore(before)
            if stage != ORDER[last]:
                _healthy(place, stage)


def _healthy(place: StageBench, stage: str) -> None:
    outcome = place.run(stage)
    if outcome.exit_code:
        raise RuntimeError(f"stage {stage} does not pass without a fault: {outcome.verdict}")


def measure(figures: Figures, faults: list[Fault]) -> None:
    """Walk through the stages once for each spec that the faults need."""
    times: dict[str, float] = {}
    missed: list[str] = []
    with serving() as plane, tempfile.TemporaryDirectory(prefix="bringup-bench-") as folder:
        fresh = plane.snapshot()
        for number, needs in enumerate(sorted({needed(fault) for fault in faults})):
            plane.restore(fresh)
            mine = [fault for fault in faults if needed(fault) == needs]
            for fault, seconds, caught in walk(plane, needs, mine, Path(folder) / str(number)):
                times[fault.name] = seconds
                missed += [] if caught else [fault.name]
                figures.note(fault.name, f"{seconds:.1f} s{'' if caught else ', its gate missed it'}")
    slowest = max(times, key=lambda name: times[name])
    figures.note("load of this machine", f"{os.getloadavg()[0]:.1f}")
    figures.at_most("fault cases that their gate missed", len(missed), 0, "")
    figures.at_most(f"a case from its snapshot, median of {len(times)}", statistics.median(times.values()), LIMIT, "s")
    figures.at_most(f"a case from its snapshot, slowest ({slowest})", times[slowest], LIMIT, "s")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every fault, in place of one of each stage")
    parser.add_argument(
        "--fault", action="append", default=[], choices=[fault.name for fault in fault_registry.faults()], metavar="NAME"
    )
    given = parser.parse_args()
    figures = Figures("fault cases on a real API server, 8 nodes")
    if able(figures, "a case from its snapshot"):
        measure(figures, chosen(given.fault, given.all))
    figures.exit()


if __name__ == "__main__":
    main()
