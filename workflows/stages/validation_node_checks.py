"""Stage validation: checks inside each node: NCCL over its GPUs, host facts, the speed of each GPU, and DCGM's diagnostics."""

from __future__ import annotations

from workflows.spec.acceptance.acceptance_levels import LEVELS
from workflows.spec.cluster_spec import ClusterSpec, adapters_floor, gpu_floors, intra_node_floor
from workflows.spec.gpu_pools import joins_gpus, shares_by_mig
from workflows.stages import manifest_objects, validation_tasks
from workflows.stages.stage import Object, Site, Step
from workflows.stages.validation_tasks import STAGE, CheckMaker

INTRA_CHECK, DCGM_CHECK = "nccl-intra", "dcgm"
INTRA, DCGM = "validation/intra", "validation/dcgm"

SPREAD_INTRA = 0.1
"""Largest accepted difference between repeated runs, as a share of the fastest run; runs in a node repeat within a few percent."""

LANES = 16
"""PCIe lanes of every product's GPUs (data sheets at https://www.nvidia.com/en-us/data-center/products/)."""

DCGM_IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04"
"""The DCGM image of GPU Operator 26.7 (its values.yaml `dcgm`); DCGM 4 runs with every driver from R535 on."""

DCGM_SECONDS = {1: 300, 2: 900, 3: 3600, 4: 10800}
"""Level of `dcgmi diag -r` → time limit in seconds, with a margin: levels take seconds, 2 minutes, 15 minutes, or longer."""


def checks(site: Site) -> tuple[CheckMaker, ...]:
    """Return the makers of the site's tasks, in running order."""
    return (*((intra,) if joins_gpus(site.spec) else ()), dcgm)


def intra(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that measures NCCL over the GPUs of each node, and where the level wants it over its adapters alone."""
    spec, seconds = site.spec, validation_tasks.time_limit(site)
    adapters = spec.fabric.kind != "none" and LEVELS[spec.validation.level].measures_adapters
    runs = spec.validation.runs
    env = validation_tasks.sizes(site, runs, seconds, launches=runs * (1 + adapters))
    env += [{"name": "ADAPTERS", "value": "1"}, *validation_tasks.adapters(site)] if adapters else []
    container = manifest_objects.container(spec.validation.image, manifest_objects.script("nccl_intra.sh"), env=env)
    pod = manifest_objects.gpu_pod(site, container, INTRA_CHECK, fabric=adapters)
    annotations = validation_tasks.network_annotations(site).get("annotations") if adapters else None
    result = validation_tasks.want(site, floor=intra_node_floor(spec), spread=SPREAD_INTRA)
    over_rdma = validation_tasks.over_rdma(site)
    fabric = validation_tasks.want(site, floor=adapters_floor(spec), spread=SPREAD_INTRA, **over_rdma)
    return validation_tasks.check(
        site,
        "nccl_intra",
        INTRA,
        INTRA_CHECK,
        [manifest_objects.per_node_job(STAGE, INTRA_CHECK, pod, seconds=seconds - 30, annotations=annotations)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={**manifest_objects.gpu_counts(site), "want": result, **({"fabric": fabric} if adapters else {})},
    )


LOAD_SECONDS = 180
"""Time that host facts under load and nvbandwidth take beside the diagnostic, with a margin."""


def dcgm(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that reads host facts of each node under load, measures its GPUs, and runs DCGM's diagnostics."""
    spec, whole = site.spec, not shares_by_mig(site.spec)
    # with MIG, pods hold no whole GPU, which the hardware tests of higher levels need
    level = LEVELS[spec.validation.level].dcgm_level(spec.validation.dcgm_level) if whole else 1
    speed = whole and LEVELS[spec.validation.level].measures_gpus
    seconds = DCGM_SECONDS[level] + (DCGM_SECONDS[2] if speed else LOAD_SECONDS)
    env = [
        manifest_objects.node_name(),
        {"name": "LEVEL", "value": str(level)},
        {"name": "SECONDS_TO_RUN", "value": str(DCGM_SECONDS[level] - 120)},
        *([{"name": "COPIES", "value": "1"}] if speed else []),
    ]
    # the kernel's log holds Xids, and reading it takes CAP_SYSLOG
    secured = {"capabilities": {"add": ["SYSLOG"]}}
    container = manifest_objects.container(DCGM_IMAGE, manifest_objects.script("dcgm.sh"), env=env, securityContext=secured)
    pod = manifest_objects.gpu_pod(site, container, DCGM_CHECK)
    expectations = {**manifest_objects.gpu_counts(site), "level": level, "host": host_facts(spec)}
    expectations |= {"speed": gpu_floors(spec)} if speed else {}
    expectations |= {"may_differ": spec.validation.allowed_differences} if spec.validation.may_differ else {}
    return validation_tasks.check(
        site,
        "dcgm",
        DCGM,
        DCGM_CHECK,
        [manifest_objects.per_node_job(STAGE, DCGM_CHECK, pod, seconds=seconds - 30)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations=expectations,
    )


def host_facts(spec: ClusterSpec) -> Object:
    """Return the expected host facts of a GPU, with the fields of `steps.contract.node_tests.node_health.HostWant`."""
    accelerator = spec.accelerator
    if accelerator is None:
        return {}
    lanes = LANES if accelerator.expected_pcie_generation else 0
    return {
        "product": accelerator.label,
        "pcie_generation": accelerator.expected_pcie_generation,
        "pcie_width": lanes,
        **({"links": accelerator.facts.nvlinks} if accelerator.facts.nvlinks and accelerator.per_node > 1 else {}),
        **({"adapters": True} if spec.fabric.kind != "none" else {}),
    }
