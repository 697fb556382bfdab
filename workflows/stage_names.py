"""Names of the bring-up stages in running order, apart from the spec's models so that light commands need not load these."""

from typing import Literal, get_args

StageName = Literal[
    "os_prep", "rke2", "base_services", "gpu_operator", "network_operator", "sharing", "gang", "slurm", "validation"
]
"""The nine stages of a bring-up, in running order."""

STAGES: tuple[StageName, ...] = get_args(StageName)
