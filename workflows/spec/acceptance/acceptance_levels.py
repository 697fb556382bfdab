"""Levels of an acceptance: which tests each level runs, and how long it keeps a cluster busy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

QUICK, STANDARD, FULL = "quick", "standard", "full"


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of an acceptance.

    `minutes` is the time on a healthy cluster: the time-outs of the tests are far above it. `tests` names what runs, in order.
    `dcgm_least` and `dcgm_most` bound the level of `dcgmi diag`, which the spec chooses between them. `programs` are what the
    launcher of NCCL over all nodes runs after all_reduce. `measures_gpus`: a GEMM and nvbandwidth on each GPU are judged, where the
    image has them. `measures_adapters`: NCCL in a node also runs over its adapters.
    """

    name: str
    minutes: int
    tests: tuple[str, ...]
    dcgm_least: int
    dcgm_most: int
    programs: tuple[str, ...] = ()
    measures_gpus: bool = True
    measures_adapters: bool = True

    def dcgm_level(self, chosen: int) -> int:
        """Return the level of `dcgmi diag` for the level that a spec chooses."""
        return max(self.dcgm_least, min(chosen, self.dcgm_most))

    @property
    def sentence(self) -> str:
        """Return tests and duration in words."""
        return f"{self.name}, about {self.minutes} min: {', '.join(self.tests)}"


_FACTS, _IN_NODE, _ACROSS = "host facts of each node", "NCCL in each node", "NCCL all_reduce over all nodes"
_GPUS, _ADAPTERS = "GEMM and nvbandwidth on each GPU", "NCCL in each node over its adapters alone"
_MORE = ("all_gather and alltoall over all nodes", "all_reduce over 2, 4, 8 … nodes", "OSU latency")
_GIVEN = ("fio and STREAM where the spec has them", "torchrun on two nodes where the spec has it")
_COLLECTIVES = ("scaling", "all_gather", "alltoall", "osu_latency")

LEVELS: Mapping[str, Level] = {
    level.name: level
    for level in (
        # dcgmi diag takes seconds at level 1, 2 minutes at level 2 and 15 at level 3 (steps/docs/facts/acceptance.md, DCGM diag)
        Level(
            name=QUICK,
            minutes=12,
            tests=(_FACTS, _IN_NODE, "DCGM level 1", _ACROSS),
            dcgm_least=1,
            dcgm_most=1,
            measures_gpus=False,
            measures_adapters=False,
        ),
        Level(
            name=STANDARD,
            minutes=40,
            tests=(_FACTS, _IN_NODE, _ADAPTERS, "DCGM level 2", _GPUS, _ACROSS, *_MORE),
            dcgm_least=1,
            dcgm_most=4,
            programs=_COLLECTIVES,
        ),
        Level(
            name=FULL,
            minutes=70,
            tests=(_FACTS, _IN_NODE, _ADAPTERS, "DCGM level 3", _GPUS, _ACROSS, *_MORE, "OSU bandwidth and allreduce", *_GIVEN),
            dcgm_least=3,
            dcgm_most=4,
            programs=(*_COLLECTIVES, "osu_bw", "osu_allreduce"),
        ),
    )
}
"""Levels by name, shortest first."""
