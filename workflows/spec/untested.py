"""The tests that the configuration of a spec rules out, each with its reason; nothing that was asked for is dropped in silence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workflows.spec.cluster_spec import ClusterSpec

NCCL_INTRA, NCCL_INTER, DCGM, PORTS, SRUN = (
    "NCCL inside nodes",
    "NCCL between nodes",
    "DCGM diagnostics",
    "ib_write_bw between nodes",
    "srun on every node",
)
"""Names of the tests, as reports print them."""


@dataclass(frozen=True, slots=True)
class UntestedPart:
    """A test that does not run, or runs at a lower level; `path` is the key of the spec that rules it out."""

    test: str
    path: str
    reason: str

    @property
    def stage(self) -> str:
        """The stage that the test belongs to."""
        return {PORTS: "network_operator", SRUN: "slurm"}.get(self.test, "validation")


def shares_by_mig(spec: ClusterSpec) -> bool:
    """Return True if GPUs are cut into MIG instances, which NCCL cannot join and DCGM's hardware tests do not take."""
    return spec.sharing.mode == "mig"


def untested(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the tests of the enabled stages that this spec rules out."""
    stages, gpu, machines = spec.enabled_stages(), spec.accelerator, len(spec.gpu_machines)
    if "validation" in stages and gpu is not None:
        yield from _of_validation(spec, gpu.per_node, machines)
    if "network_operator" in stages and machines < 2:
        yield UntestedPart(PORTS, "hosts", "it measures between neighbours, and there is one GPU machine")
    if "slurm" in stages and spec.slurm.kind == "sunk":
        yield UntestedPart(SRUN, "slurm.kind", "how a pod of the check logs in to SUNK is not public")


def _of_validation(spec: ClusterSpec, per_node: int, machines: int) -> Iterator[UntestedPart]:
    if shares_by_mig(spec):
        joined = "NCCL cannot join MIG instances of several GPUs"
        yield from (UntestedPart(test, "sharing.mode", joined) for test in (NCCL_INTRA, NCCL_INTER))
        level = spec.validation.dcgm_level
        if level > 1:
            reason = f"level 1 instead of {level}: with MIG no pod holds a whole GPU, which its hardware tests need"
            yield UntestedPart(DCGM, "sharing.mode", reason)
        return
    if per_node < 2:
        yield UntestedPart(NCCL_INTRA, "accelerator.per_node", "a node has one GPU")
    if machines < 2:
        yield UntestedPart(NCCL_INTER, "hosts", "there is one GPU machine")


def runs(spec: ClusterSpec, test: str) -> bool:
    """Return True if one of the tests with a bandwidth floor runs in this configuration."""
    stages = spec.enabled_stages()
    stage = "network_operator" if test == PORTS else "validation"
    return spec.accelerator is not None and stage in stages and test not in {part.test for part in untested(spec)}
