"""The tests that the configuration of a spec rules out, each with its reason; nothing that was asked for is dropped in silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from workflows.spec.acceptance import unit_checks
from workflows.spec.acceptance.acceptance_levels import FULL, LEVELS
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.gpu_pools import GpuPool, gpu_pools, group_path, joins_gpus, quota_flavors, shares_by_mig, whole_pools
from workflows.spec.sections.slurm_section import Partition, Slurm, sharing_check

NCCL_INTRA, NCCL_INTER, DCGM, PORTS, GANG, SRUN, CUDA_IN_JOBS = (
    "NCCL inside nodes",
    "NCCL between nodes",
    "DCGM diagnostics",
    "ib_write_bw between nodes",
    "gangs of GPU pods",
    "srun on every node",
    "CUDA in Slurm's jobs",
)
GPU_SPEED, PCIE_LINKS = "speed of each GPU", "PCIe links of GPUs"
ADAPTERS, COLLECTIVES = "NCCL over the adapters alone", "all_gather and alltoall over all nodes"
BENCHMARKS, TRAINING = "benchmarks of storage and memory", "training on two nodes"
PAIRS, FILLED = "two pods with a GPU each", "one GPU pod more than a node has room for"
SHARED_JOBS, TREE = "jobs that share a node, or have it alone", "Slurm's topology"
USER_LOGIN = "login and job of a plain user"
"""Names of the tests, as reports print them; `on GROUP, …` follows if a test runs on other groups."""


NAMED = 3
"""Most machines that the name of a test lists."""


@dataclass(frozen=True, slots=True)
class UntestedPart:
    """A test that does not run, or runs at a lower level; `path` is the key of the spec that rules it out."""

    test: str
    path: str
    reason: str

    @property
    def sentence(self) -> str:
        """The test and what becomes of it, with the reason."""
        return f"{self.test} {'runs at' if self.reason.startswith('level') else 'does not run:'} {self.reason}"

    @property
    def stage(self) -> str:
        """The stage that the test belongs to."""
        by_test = {
            PORTS: "network_operator",
            PAIRS: "sharing",
            FILLED: "sharing",
            GANG: "gang",
            SRUN: "slurm",
            CUDA_IN_JOBS: "slurm",
            SHARED_JOBS: "slurm",
            TREE: "slurm",
            USER_LOGIN: "slurm",
        }
        # names of tests contain " on " themselves
        return next((by_test[test] for test in by_test if self.test == test or self.test.startswith(f"{test} on ")), "validation")


def untested(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the tests of the enabled stages that this spec rules out, on all GPU groups or on some."""
    stages, machines = spec.enabled_stages(), len(spec.gpu_machines)
    if "validation" in stages and spec.accelerator is not None:
        yield from _of_validation(spec)
    if "network_operator" in stages and machines < 2:
        yield UntestedPart(PORTS, "hosts", "it measures between neighbours, and there is one GPU machine")
    if "sharing" in stages:
        yield from _of_units(spec)
    if "gang" in stages:
        yield from _of_gang(spec)
    if "slurm" in stages and spec.slurm.kind == "sunk":
        yield from _of_sunk(spec)
    if "slurm" in stages:
        yield from _of_sharing(spec.slurm.partitions)
        yield from _of_logins(spec.slurm)


def _of_sharing(partitions: Sequence[Partition]) -> Iterator[UntestedPart]:
    if sharing_check(partitions) is not None:
        return
    if all(partition.shares_by_force for partition in partitions):
        yield UntestedPart(SHARED_JOBS, "slurm.partitions", "the check has no test for partitions with FORCE:1")
    else:
        yield UntestedPart(SHARED_JOBS, "slurm.partitions", "some partitions share nodes by force, and the check uses one of all")


def _of_logins(slurm: Slurm) -> Iterator[UntestedPart]:
    """Yield the login of the test user where the check cannot log in as that user."""
    if not slurm.login.test_user:
        return
    if slurm.kind == "slinky":
        reason = "Slinky's chart carries SSH keys of root alone: users and their keys come from the site's directory"
        yield UntestedPart(USER_LOGIN, "slurm.login.test_user", reason)
    elif not slurm.login.replicas:
        yield UntestedPart(USER_LOGIN, "slurm.login.replicas", "there is no login pod")


def _of_sunk(spec: ClusterSpec) -> Iterator[UntestedPart]:
    if not spec.slurm.login.replicas:
        why = "the check of SUNK runs in a login pod, and there is none"
        yield UntestedPart(SRUN, "slurm.login.replicas", why)
        if spec.slurm.topology == "tree":
            yield UntestedPart(TREE, "slurm.login.replicas", "a job asks slurmctld for it, and jobs start in a login pod")
    elif any(machine.gpus for machine in spec.machines):
        yield UntestedPart(
            CUDA_IN_JOBS, "slurm.kind", "the check in SUNK's login pod has no CUDA program; it counts the GPUs of jobs"
        )


def _of_validation(spec: ClusterSpec) -> Iterator[UntestedPart]:
    pools, level = gpu_pools(spec), LEVELS[spec.validation.level]
    cut = [pool for pool in pools if shares_by_mig(pool.spec)]
    if cut:
        path = group_path(spec, cut[0], "sharing.mode")
        joined = "NCCL cannot join MIG instances of several GPUs"
        yield from (UntestedPart(_on(test, cut, pools), path, joined) for test in (NCCL_INTRA, NCCL_INTER))
        dcgm_level = level.dcgm_level(spec.validation.dcgm_level)
        if dcgm_level > 1:
            reason = f"level 1 instead of {dcgm_level}: with MIG no pod holds a whole GPU, which its hardware tests need"
            yield UntestedPart(_on(DCGM, cut, pools), path, reason)
        if level.measures_gpus:
            yield UntestedPart(_on(GPU_SPEED, cut, pools), path, "a MIG instance is a part of a GPU, with no published figures")
    joined_to_cpu = [pool for pool in pools if not pool.accelerator.expected_pcie_generation]
    if joined_to_cpu:
        path, reason = group_path(spec, joined_to_cpu[0], "accelerator.product"), "NVLink-C2C joins its GPUs to the CPU"
        yield UntestedPart(_on(PCIE_LINKS, joined_to_cpu, pools), path, reason)
    single = [pool for pool in pools if pool not in cut and pool.accelerator.per_node < 2]
    if single:
        yield UntestedPart(
            _on(NCCL_INTRA, single, pools), group_path(spec, single[0], "accelerator.per_node"), "a node has one GPU"
        )
    for together in whole_pools(spec):
        if not are_several(together):
            what = "one GPU machine" if len(pools) == 1 else f"one machine with {together[0].accelerator.product}"
            yield UntestedPart(_on(NCCL_INTER, together, pools), "hosts", f"there is {what}")
    yield from _of_level_full(spec) if level.name == FULL else _of_lower_levels(spec)
    possible = spec.fabric.kind != "none" and any(joins_gpus(pool.spec) for pool in pools)
    if level.measures_adapters and spec.validation.gpu_floors.adapters_gb_s and not possible:
        reason = "it takes a fabric, and nodes with several GPUs that are not cut by MIG"
        yield UntestedPart(ADAPTERS, "validation.gpu_floors.adapters_gb_s", reason)


def _of_lower_levels(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the tests below level full for which the spec has settings, and which only a higher level runs."""
    validation, floors, level = spec.validation, spec.validation.gpu_floors, LEVELS[spec.validation.level]
    # the defaults ask for nothing: only what the user wrote is named
    full = {BENCHMARKS: validation.benchmarks, TRAINING: validation.training}
    yield from (UntestedPart(test, "validation.level", "it runs at level full alone") for test in full if full[test] is not None)
    collectives = {"all_gather": validation.nccl.all_gather_floor_gb_s, "alltoall": validation.nccl.alltoall_floor_gb_s}
    unused = {
        GPU_SPEED: () if level.measures_gpus else (floors.gemm_tflops, floors.host_gb_s, floors.peer_gb_s),
        ADAPTERS: () if level.measures_adapters else (floors.adapters_gb_s,),
        COLLECTIVES: [floor for name, floor in collectives.items() if name not in level.programs],
    }
    for test, wanted in unused.items():
        if any(wanted):
            yield UntestedPart(test, "validation.level", "its floors count at levels standard and full alone")


def _of_level_full(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the workloads of level full for which the spec names no image, or which cannot run."""
    validation = spec.validation
    if validation.benchmarks is None:
        reason = "the spec names no image with fio and stream_c: write validation.benchmarks.image"
        yield UntestedPart(BENCHMARKS, "validation.benchmarks", reason)
    if validation.training is None:
        reason = "the spec names no image with PyTorch: write validation.training.image"
        yield UntestedPart(TRAINING, "validation.training", reason)
    else:
        yield from _of_training(spec)


def _of_training(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the sets of equal machines on which the training job has no two nodes with whole GPUs."""
    pools, reason = gpu_pools(spec), "it takes two nodes with whole GPUs"
    cut = [pool for pool in pools if shares_by_mig(pool.spec)]
    if cut:
        yield UntestedPart(_on(TRAINING, cut, pools), group_path(spec, cut[0], "sharing.mode"), reason)
    for together in whole_pools(spec):
        if not are_several(together):
            yield UntestedPart(_on(TRAINING, together, pools), "hosts", f"{reason} of one kind")


def are_several(together: Iterable[GpuPool]) -> bool:
    """Return True if pools have at least two machines together, which tests between nodes take."""
    return sum(len(pool.spec.gpu_machines) for pool in together) > 1


def _of_units(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the proofs of sharing that machines with one GPU rule out, and those for which pods cannot fill a node."""
    pools, filled = gpu_pools(spec), dict[tuple[str, str], list[GpuPool]]()
    for pool in pools:
        counts = unit_checks.unit_counts(pool.spec, pool.spec.gpu_machines)
        single = unit_checks.single_units(counts)
        if single:
            names = f"{', '.join(single[:NAMED])}{f' and {len(single) - NAMED} more' if len(single) > NAMED else ''}"
            test = _on(PAIRS, [pool], pools) if len(single) == len(counts) else f"{PAIRS} on {names}"
            yield UntestedPart(test, group_path(spec, pool, "accelerator.per_node"), "a node has one GPU")
        if obstacle := unit_checks.fill_obstacle(pool.spec, counts):
            filled.setdefault((group_path(spec, pool, obstacle[0]), obstacle[1]), []).append(pool)
    yield from (UntestedPart(_on(FILLED, some, pools), path, reason) for (path, reason), some in filled.items())


def _of_gang(spec: ClusterSpec) -> Iterator[UntestedPart]:
    """Yield the gangs of GPU groups outside the quota by which gangs are placed, and those whose members request no GPU."""
    pools, flavors = gpu_pools(spec), quota_flavors(spec)
    placed = pools
    counted = [group for flavor in flavors for group in flavor.groups]
    others = [pool for pool in pools if pool.name not in counted]
    if others and flavors and spec.scheduler.gang == "none":
        placed = tuple(pool for pool in pools if pool not in others)
        reason = f"the flavor of the quota is for {placed[0].shown} alone"
        yield UntestedPart(_on(GANG, others, pools), "scheduler.flavor.node_labels", reason)
    for pool in placed:
        if obstacle := unit_checks.fill_obstacle(pool.spec, {}):
            yield UntestedPart(_on(GANG, [pool], pools), group_path(spec, pool, obstacle[0]), obstacle[1])


def _on(test: str, pools: Iterable[GpuPool], every: Sequence[GpuPool]) -> str:
    """Return the name of a test, with the groups on which it does not run if it runs on others."""
    groups = [name for pool in pools for name in pool.groups]
    return test if len(groups) == sum(len(pool.groups) for pool in every) else f"{test} on {', '.join(groups)}"


def runs(spec: ClusterSpec, test: str) -> bool:
    """Return True if one of the tests with a bandwidth floor runs in this configuration, at least on some GPU groups."""
    if spec.accelerator is None or ("network_operator" if test == PORTS else "validation") not in spec.enabled_stages():
        return False
    if test == NCCL_INTRA:
        return any(joins_gpus(pool.spec) for pool in gpu_pools(spec))
    if test == NCCL_INTER:
        return any(map(are_several, whole_pools(spec)))
    return test not in {part.test for part in untested(spec)}
