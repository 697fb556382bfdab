"""Levels of the acceptance of a Slurm cluster: how a pair is measured, and how long all of it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workflows.spec.acceptance.acceptance_levels import FULL, QUICK, STANDARD


@dataclass(frozen=True, kw_only=True)
class SlurmLevel:
    """A level of an acceptance from a login node.

    `minutes` is the time on a healthy, idle cluster of any size: pairs are measured at the same time. `mebibytes` is the size of a
    message, `seconds` the time of one measurement, `most_rounds` the limit of the localisation.
    """

    name: str
    minutes: int
    mebibytes: int
    seconds: int
    most_rounds: int


SLURM_LEVELS: Mapping[str, SlurmLevel] = {
    level.name: level
    for level in (
        # a round costs its seconds twice, for both directions, and some seconds of scheduling, prolog and launch
        SlurmLevel(name=QUICK, minutes=3, mebibytes=1, seconds=1, most_rounds=12),
        SlurmLevel(name=STANDARD, minutes=8, mebibytes=4, seconds=5, most_rounds=302),
        SlurmLevel(name=FULL, minutes=25, mebibytes=16, seconds=20, most_rounds=602),
    )
}
"""Levels by name, shortest first."""
