"""Input of the builder of stage slurm_acceptance: the nodes, the user's choices, and the level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workflows.accept.slurm_levels import SLURM_LEVELS, SlurmLevel
from workflows.spec.acceptance.acceptance_levels import STANDARD


@dataclass(frozen=True, kw_only=True)
class SlurmAcceptanceSite:
    """Everything that decides an acceptance from a login node.

    `gpus` is the number of GPUs on a node, -1 if it was not stated; `gpu_type` may be empty. `floor` is in GB/s. `marks` is the
    folder where prolog and epilog leave marks; `waived` leaves that proof out. `program` is the site's MPI program.
    """

    cluster: str
    nodes: tuple[str, ...]
    floor: float
    level: SlurmLevel = SLURM_LEVELS[STANDARD]
    partition: str = ""
    account: str = ""
    shared: str = ""
    gpus: int = -1
    gpu_type: str = ""
    marks: str = ""
    waived: bool = False
    allow_drain: bool = False
    program: tuple[str, ...] = ()
    mpi: str = ""

    @property
    def scripts(self) -> Literal["marks", "waived", "unstated"]:
        """Return how it is proven that prolog and epilog ran."""
        if self.waived:
            return "waived"
        return "marks" if self.marks else "unstated"
