"""Stage validation: checks inside each node: NCCL over its GPUs and DCGM's diagnostics."""

from __future__ import annotations

from workflows.accept.levels import LEVELS
from workflows.spec.cluster_spec import intra_node_floor
from workflows.stages import manifest_objects, validation_tasks
from workflows.stages.stage import Site, Step
from workflows.stages.validation_tasks import STAGE, CheckMaker

INTRA_CHECK, DCGM_CHECK = "nccl-intra", "dcgm"
INTRA, DCGM = "validation/intra", "validation/dcgm"

SPREAD_INTRA = 0.1
"""Largest accepted difference between repeated runs, as a share of the fastest run; runs in a node repeat within a few percent."""

DCGM_IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu24.04"
"""The DCGM image of GPU Operator 26.7 (its values.yaml `dcgm`); DCGM 4 runs with every driver from R535 on."""

DCGM_SECONDS = {1: 300, 2: 900, 3: 3600, 4: 10800}
"""Level of `dcgmi diag -r` → time limit in seconds, with a margin: levels take seconds, 2 minutes, 15 minutes, or longer."""


def checks(site: Site) -> tuple[CheckMaker, ...]:
    """Return the makers of the site's tasks, in running order."""
    accelerator = site.spec.accelerator
    joined = validation_tasks.has_whole_gpus(site.spec) and accelerator and accelerator.per_node > 1
    return (*((intra,) if joined else ()), dcgm)


def intra(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that measures NCCL over the GPUs of each node."""
    spec, seconds = site.spec, validation_tasks.time_limit(site)
    script, env = manifest_objects.script("nccl_intra.sh"), validation_tasks.sizes(site, spec.validation.runs, seconds)
    pod = manifest_objects.gpu_pod(site, manifest_objects.container(spec.validation.image, script, env=env), INTRA_CHECK)
    return validation_tasks.check(
        site,
        "nccl_intra",
        INTRA,
        INTRA_CHECK,
        [manifest_objects.per_node_job(STAGE, INTRA_CHECK, pod, seconds=seconds - 30)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={
            **manifest_objects.gpu_counts(site),
            "want": validation_tasks.want(site, floor=intra_node_floor(spec), spread=SPREAD_INTRA),
        },
    )


def dcgm(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that runs DCGM's diagnostics on each node, at the level that the acceptance level sets."""
    spec = site.spec
    # with MIG, pods hold no whole GPU, which the hardware tests of higher levels need
    level = LEVELS[spec.validation.level].dcgm_level(spec.validation.dcgm_level) if validation_tasks.has_whole_gpus(spec) else 1
    seconds = DCGM_SECONDS[level]
    env = [
        manifest_objects.node_name(),
        {"name": "LEVEL", "value": str(level)},
        {"name": "SECONDS_TO_RUN", "value": str(seconds - 120)},
    ]
    container = manifest_objects.container(DCGM_IMAGE, manifest_objects.script("dcgm.sh"), env=env)
    pod = manifest_objects.gpu_pod(site, container, DCGM_CHECK)
    return validation_tasks.check(
        site,
        "dcgm",
        DCGM,
        DCGM_CHECK,
        [manifest_objects.per_node_job(STAGE, DCGM_CHECK, pod, seconds=seconds - 30)],
        after=after,
        passed=passed,
        seconds=seconds,
        expectations={**manifest_objects.gpu_counts(site), "level": level},
    )
