"""Measure how long one fault takes to rehearse: restore the snapshot before its stage, run the stage, get the verdict."""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from figures import Figures

from tests.unit.rehearsal.fault_sweep import sweep_faults
from workflows import examples
from workflows.rehearsal.faults.fault_registry import STAGES, faults
from workflows.spec import load

LIMIT = 3.0


def cases(stage: str) -> dict[str, tuple[float, str]]:
    """Seconds of each fault of a stage, and what is wrong with its outcome; the stages before it run healthy first."""
    text = examples.path("h200-16").read_text()
    spec = load(text[: text.index("approvals:")])
    names = [fault.name for fault in faults() if fault.stage == stage]
    found: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory(prefix="bringup-bench-") as folder:
        began = time.perf_counter()
        for catch in sweep_faults(spec, Path(folder), only=names, until=stage):
            now = time.perf_counter()
            if catch.fault:
                found[catch.fault] = now - began, catch.problem
            began = now
    return found


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=STAGES, default="gpu_operator")
    stage = parser.parse_args().stage
    figures = Figures(f"faults of stage {stage}, 16 nodes")
    found = cases(stage)
    for fault, (seconds, problem) in found.items():
        figures.note(fault, f"{seconds:.2f} s {problem}")
    figures.note("load of this machine", f"{os.getloadavg()[0]:.1f}")
    times = [seconds for seconds, _ in found.values()]
    figures.at_most("faults that their gate missed", sum(bool(problem) for _, problem in found.values()), 0, "")
    figures.at_most(f"a fault case, median of {len(times)}", statistics.median(times), LIMIT, "s")
    figures.note("a fault case, slowest", f"{max(times):.2f} s")
    figures.exit()


if __name__ == "__main__":
    main()
