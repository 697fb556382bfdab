"""A play's facts as the observation of os_prep: how far a node's clock is certainly off, however long its change took."""

from typing import Any

import pytest

from steps.contract.host_play import HostOutcome, HostStatus
from steps.stages.os_prep import probe as os_prep

BEGAN, ENDED = 1_800_000_000.0, 1_800_000_100.0


def facts(epoch: float, after: float) -> dict[str, Any]:
    machine = {
        "os_id": "debian",
        "os_version": "12",
        "kernel": "6.1",
        "architecture": "x86_64",
        "python": "3.11.2",
        "machine_id": "a",
    }
    clock = {"epoch": epoch, "after_seconds": after}
    return {
        "items": [],
        "facts": {**machine, "clock": clock, "machine_id": "a", "gpus": 0, "nvswitches": 0, "nouveau_loaded": False},
    }


@pytest.mark.parametrize(
    ("epoch", "after", "skew"),
    [
        (BEGAN + 98, 97.5, 0.0),
        (BEGAN + 98 - 37, 97.5, -36.5),
        (BEGAN + 98 + 37, 97.5, 35.0),
        (BEGAN + 61, 0.0, 0.0),
        (BEGAN - 3, 0.0, -3.0),
        (ENDED, 500.0, 0.0),
    ],
    ids=["right", "behind after a long change", "ahead", "not told how long", "before all", "told more than the play took"],
)
def test_a_clock_is_off_by_what_no_reading_of_ours_explains(epoch: float, after: float, skew: float) -> None:
    outcome = HostOutcome(host="n1", status=HostStatus.OK, facts=facts(epoch, after), facts_from=BEGAN, facts_to=ENDED)
    (node,) = os_prep.from_play([outcome]).nodes
    assert node.skew_seconds == skew
