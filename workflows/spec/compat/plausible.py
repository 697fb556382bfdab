"""Rules about what hardware and catalog can give: P27 (versions), P28 (floors), P29 (tests that do not run), P31 (quotas)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from workflows.spec.accelerators import HOST_GB_S, NEWEST_PATCH, is_prerelease, numbers
from workflows.spec.acceptance.untested import NCCL_INTER, NCCL_INTRA, PORTS, are_several, runs, untested
from workflows.spec.cluster_spec import ClusterSpec, allocatable
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.gpu_pools import PoolFlavor, gpu_pools, joins_gpus, quota_flavors, shares_by_mig, whole_pools
from workflows.spec.sections.gpus import Accelerator

_RHEL = tuple(f"{major}.{minor}" for major, most in ((8, 10), (9, 8), (10, 2)) for minor in range(most + 1))
KNOWN_SYSTEMS = {
    "ubuntu": ("22.04", "24.04", "26.04"),
    "debian": ("12", "13"),
    "rhel": _RHEL,
    "rocky": _RHEL,
    "almalinux": _RHEL,
    "sles": ("15.5", "15.6", "15.7", "16.0"),
}
"""Distribution → values of VERSION_ID for which the catalog's node profile is written."""
_OLDEST = {"ubuntu": (22,), "debian": (11,), "rhel": (8,), "rocky": (8,), "almalinux": (8,), "sles": (15, 3)}
"""Oldest releases with the unified cgroup hierarchy that Kubernetes needs (https://kubernetes.io/docs/concepts/architecture/cgroups/)."""


@rule("P27", "warning", source="https://docs.rke2.io/install/requirements", later=())
def versions_are_known(platform: Platform) -> Iterator[RuleFinding]:
    """The catalog knows the release of the operating system and the RKE2 release."""
    os, known = platform.spec.os, KNOWN_SYSTEMS[platform.spec.os.distribution]
    if os.version not in known:
        latest = next((name for name in reversed(known) if numbers(name)[:1] == numbers(os.version)[:1]), known[-1])
        too_old = numbers(os.version) < _OLDEST[os.distribution]
        foreign = all(numbers(name)[0] != numbers(os.version)[0] for name in known)
        problem = f"the node profile is not written for {os.distribution} {os.version}"
        reason = "; it has no unified cgroup hierarchy, which Kubernetes needs" if too_old else ""
        fix = f'write it as VERSION_ID in /etc/os-release has it, as in "{latest}"; known are {_folded(known)}'
        if foreign or too_old:  # no other spelling of a known release
            fix = f"install a known release on the machines ({_folded(known)}), and write that"
        yield RuleFinding("os.version", problem + reason, fix, "error" if too_old or foreign else None)
    running, release = platform.kubernetes, platform.spec.rke2.version
    newest = NEWEST_PATCH.get(running[1])
    if newest is not None and running[2] > newest:
        problem = f"no release {release} is known; the newest of its minor here is v1.{running[1]}.{newest}"
        yield RuleFinding("rke2.version", problem, "see that its files exist: https://github.com/rancher/rke2/releases")
    elif is_prerelease(release):
        yield RuleFinding("rke2.version", f"{release} is a pre-release", f"use v1.{running[1]}.{newest or 0}+rke2r1")


def _folded(known: tuple[str, ...]) -> str:
    return ", ".join(known) if len(known) < 6 else f"{known[0]} to {known[-1]}"


@rule("P28", "error", source="https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md")
def floors_can_be_met(platform: Platform) -> Iterator[RuleFinding]:
    """A bandwidth floor is used by a test that runs, and lies below what the links of the hardware can carry."""
    spec, nccl = platform.spec, platform.spec.validation.nccl
    floors = {
        NCCL_INTRA: ("validation.nccl.intra_node_floor_gb_s", nccl.intra_node_floor_gb_s),
        NCCL_INTER: ("validation.nccl.inter_node_floor_gb_s", nccl.inter_node_floor_gb_s),
        PORTS: ("validation.ib_write_bw_floor_gbit_s", spec.validation.ib_write_bw_floor_gbit_s),
    }
    for test, (path, floor) in floors.items():
        chosen = spec.stages is None or _stage(test) in spec.stages  # stages that a user leaves out keep their settings
        if floor is not None and chosen and not runs(spec, test):
            yield RuleFinding(
                path, f"no test uses this floor: {_why_not(spec, test)}", "remove the floor, or what rules its test out"
            )
    yield from platform.parts(_above_links(spec), _idle_floors(spec), _above_hardware(spec))


def _idle_floors(spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield floors of tests that no level runs in this configuration; those of a level that is not chosen are named by P29."""
    if spec.stages is not None and "validation" not in spec.stages:  # stages that a user leaves out keep their settings
        return
    nccl, own, training = spec.validation.nccl, spec.validation.gpu_floors, spec.validation.training
    pools = gpu_pools(spec)
    whole = any(not shares_by_mig(pool.spec) for pool in pools)
    joined = any(joins_gpus(pool.spec) for pool in pools)
    across, no_gpu = runs(spec, NCCL_INTER), "the spec names no accelerator"
    between = "" if across else _why_not(spec, NCCL_INTER)
    alone = "" if whole else "every GPU is cut by MIG" if pools else no_gpu
    adapters = (
        "" if joined and spec.fabric.kind != "none" else "it takes a fabric, and nodes with several GPUs that are not cut by MIG"
    )
    floors = (
        ("nccl.all_gather_floor_gb_s", nccl.all_gather_floor_gb_s, between),
        ("nccl.alltoall_floor_gb_s", nccl.alltoall_floor_gb_s, between),
        ("training.all_reduce_floor_gb_s", training.all_reduce_floor_gb_s if training else None, between),
        ("gpu_floors.gemm_tflops", own.gemm_tflops, alone),
        ("gpu_floors.host_gb_s", own.host_gb_s, alone),
        ("gpu_floors.peer_gb_s", own.peer_gb_s, "" if joined else "no node has two whole GPUs" if pools else no_gpu),
        ("gpu_floors.adapters_gb_s", own.adapters_gb_s, adapters if pools else no_gpu),
    )
    for key, floor, reason in floors:
        if floor is not None and reason:
            problem = f"no test uses this floor: {reason}"
            yield RuleFinding(f"validation.{key}", problem, "remove the floor, or what rules its test out")


def _above_hardware(spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield floors of a GPU by itself and of the programs after all_reduce that are above the peak of the slowest product.

    Of the products of several host groups only those count on which the floor's test runs.
    """
    nccl, own, training, fabric = spec.validation.nccl, spec.validation.gpu_floors, spec.validation.training, spec.fabric
    measured = [pool.accelerator for pool in gpu_pools(spec) if not shares_by_mig(pool.spec)]
    hosts = [HOST_GB_S.get(gpu.expected_pcie_generation, math.inf) for gpu in measured]
    line = fabric.nics_per_node * fabric.rate_gbit / 8 if fabric.kind != "none" else math.inf
    link, between = _slowest_link(_joined(spec)), _between_nodes(spec)
    # between two nodes half of the data stays inside them, so that twice the rate of the ports can be reached
    across = part = _slowest_link(between)
    if not any(gpu.facts.joins_nodes for gpu in between):
        across, part = min(2 * line, across), min(2 * line / min((gpu.per_node for gpu in between), default=1), part)
    gemm = min((gpu.facts.half_tflops for gpu in measured), default=math.inf)
    limits = (
        ("nccl.all_gather_floor_gb_s", nccl.all_gather_floor_gb_s, across, "GB/s of the links between two nodes"),
        ("nccl.alltoall_floor_gb_s", nccl.alltoall_floor_gb_s, part, "GB/s of one GPU's part of the links between two nodes"),
        ("training.all_reduce_floor_gb_s", training.all_reduce_floor_gb_s if training else None, across, "GB/s of two nodes"),
        ("gpu_floors.gemm_tflops", own.gemm_tflops, gemm, "TFLOPS of the tensor cores"),
        ("gpu_floors.host_gb_s", own.host_gb_s, min(hosts, default=math.inf), "GB/s of the GPU's link to its CPU in one direction"),
        ("gpu_floors.peer_gb_s", own.peer_gb_s, link, "GB/s of all links of one GPU in both directions together"),
        (
            "gpu_floors.adapters_gb_s",
            own.adapters_gb_s,
            min(2 * line, link),
            "GB/s of the ports of a node in both directions together",
        ),
    )
    for key, floor, limit, what in limits:
        if floor is not None and floor > limit:
            problem = f"{floor:g} is above the {limit:g} {what}, so no run reaches this floor"
            yield RuleFinding(f"validation.{key}", problem, "give 0.9 × the measured baseline, in the unit of the key")


def _joined(spec: ClusterSpec) -> list[Accelerator]:
    """Return the accelerators of the pools in whose machines NCCL joins several GPUs."""
    return [pool.accelerator for pool in gpu_pools(spec) if joins_gpus(pool.spec)]


def _between_nodes(spec: ClusterSpec) -> list[Accelerator]:
    """Return the accelerators of the pools that NCCL joins between machines."""
    return [pool.accelerator for together in whole_pools(spec) if are_several(together) for pool in together]


def _slowest_link(accelerators: list[Accelerator]) -> float:
    return min((gpu.facts.link_gb_s for gpu in accelerators), default=math.inf)


def _why_not(spec: ClusterSpec, test: str) -> str:
    part = next((part for part in untested(spec) if part.test.startswith(test)), None)
    if part is not None:
        return f"{test} does not run, since {part.reason}"
    return f"{test} belongs to stage {_stage(test)}, which this spec gives no work"


def _stage(test: str) -> str:
    return "network_operator" if test == PORTS else "validation"


def _above_links(spec: ClusterSpec) -> Iterator[RuleFinding]:
    nccl, fabric = spec.validation.nccl, spec.fabric
    if spec.accelerator is None:
        return
    # a floor holds for all products that its test measures, so the slowest one limits it
    gpu = min(_joined(spec) or [spec.accelerator], key=lambda accelerator: accelerator.facts.link_gb_s)
    limit = gpu.facts.link_gb_s
    if nccl.intra_node_floor_gb_s is not None and nccl.intra_node_floor_gb_s > limit:
        problem = f"all links of one {gpu.product} carry {limit:g} GB/s in both directions together, so no run reaches this floor"
        yield RuleFinding("validation.nccl.intra_node_floor_gb_s", problem, "give 0.9 × the measured baseline in GB/s (not Gbit/s)")
    if nccl.inter_node_floor_gb_s is None:
        return
    path = "validation.nccl.inter_node_floor_gb_s"
    gpu = min(_between_nodes(spec) or [spec.accelerator], key=lambda accelerator: accelerator.facts.link_gb_s)
    limit = gpu.facts.link_gb_s
    # the rate of an Ethernet that no fabric describes is not known
    if fabric.kind == "none" or gpu.facts.joins_nodes:
        if nccl.inter_node_floor_gb_s > limit:
            problem = f"one {gpu.product} takes part with at most {limit:g} GB/s, so no run reaches this floor"
            yield RuleFinding(path, problem, "give 0.9 × the measured baseline in GB/s (not Gbit/s)")
        return
    line = fabric.nics_per_node * fabric.rate_gbit / 8
    nics = f"{fabric.nics_per_node} ports of {fabric.rate_gbit} Gbit/s"
    if nccl.inter_node_floor_gb_s > min(2 * line, limit):
        problem = f"{nics} carry {line:g} GB/s each way and one {gpu.product} {limit:g} GB/s, so no run reaches this floor"
        yield RuleFinding(path, problem, "give 0.9 × the measured baseline in GB/s (not Gbit/s)")
    elif nccl.inter_node_floor_gb_s > line:
        problem = f"{nics} carry {line:g} GB/s each way: more is reached only if switches add up the data, or between two nodes"
        yield RuleFinding(path, problem, "give 0.9 × the measured baseline in GB/s", "warning")


@rule("P29", "warning", source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/")
def every_test_runs(platform: Platform) -> Iterator[RuleFinding]:
    """The configuration lets every test of the enabled stages run; one that does not run is named here and in the plan."""
    for part in untested(platform.spec):
        yield RuleFinding(part.path, part.sentence, "accept it, or prove it on a cluster without this setting")


@rule("P31", "error", source="https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/", later=("gang/control",))
def quotas_exist(platform: Platform) -> Iterator[RuleFinding]:
    """The quotas of all queues together promise no more of a resource than the GPU machines advertise."""
    spec = platform.spec
    if spec.scheduler.quota == "none" or spec.accelerator is None or not spec.scheduler.queues:
        return
    flavors, queues = quota_flavors(spec), spec.scheduler.queues
    if not flavors or (len(flavors) > 1 and any(queue.gpus_by_group is None for queue in queues)):  # rule P10 says why
        return
    for flavor in flavors:
        # machines with a GPU out count as whole: the quorum forgives what they lack
        whole = [
            allocatable(pool.spec, max(pool.accelerator.per_node, machine.gpus))
            for pool in flavor.pools
            for machine in pool.spec.gpu_machines
        ]
        yield from _flavor_exists(flavor, whole, spec)
    promised = sum(queue.quota for queue in queues)
    if not promised:
        problem = "every quota is 0, so no job is ever admitted"
        yield RuleFinding("scheduler.queues", problem, "give at least one queue of each cohort some gpus")


def _flavor_exists(flavor: PoolFlavor, whole: list[dict[str, int]], spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield the resources of which all quotas in a flavor promise more than its machines advertise, each as in `whole`."""
    queues, covered = spec.scheduler.queues, spec.scheduler.flavor.covered_resources
    for name in dict.fromkeys(name for counts in whole for name, count in counts.items() if count):
        exists = sum(counts.get(name, 0) for counts in whole)
        promised = sum(flavor.quota(queue, name) for queue in queues)
        if promised > exists and name in (covered or (name,)):
            shares = ", ".join(f"{queue.name} {flavor.quota(queue, name)}" for queue in queues[:6])
            problem = f"the queues promise {promised} {name} ({shares}), and {len(whole)} machines advertise {exists}"
            yield RuleFinding("scheduler.queues", problem, "lower gpus of the queues, and let them borrow in a cohort")
