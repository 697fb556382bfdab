"""The baseline of a run: nodes far below the median are named, a spread fleet and a small one name nobody."""

import random

from steps.stages.validation import fleet_baseline


def test_nodes_far_below_the_median_are_named_lowest_first() -> None:
    seed = 7
    print(f"seed {seed}")
    draw = random.Random(seed)
    fleet = {f"gpu{number:03d}": 474 + draw.uniform(-2, 2) for number in range(64)}
    low = fleet_baseline.outliers(fleet | {"gpu007": 440.0, "gpu009": 431.5})
    assert list(low) == ["gpu009", "gpu007"]
    (note,) = fleet_baseline.note(fleet | {"gpu007": 440.0}, "NCCL inside nodes", "GB/s")
    assert note.startswith("far below the other nodes of this run in NCCL inside nodes: gpu007 440; median 47")


def test_a_percent_is_no_outlier_and_few_nodes_are_no_baseline() -> None:
    fleet = {f"gpu{number}": 474.0 for number in range(16)}
    assert not fleet_baseline.outliers(fleet | {"gpu3": 468.0})
    assert not fleet_baseline.outliers({"gpu1": 474.0, "gpu2": 100.0, "gpu3": 474.0})
