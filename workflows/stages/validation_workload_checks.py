"""Stage validation: workloads of level full whose images the spec names: fio and STREAM on every node, torchrun on two nodes."""

from __future__ import annotations

from workflows.spec.acceptance.acceptance_levels import FULL
from workflows.stages import manifest_objects, validation_tasks
from workflows.stages.stage import Object, Site, Step
from workflows.stages.validation_tasks import STAGE, CheckMaker

BENCHMARKS_CHECK, TRAINING_CHECK = "benchmarks", "training"
BENCHMARKS, TRAINING = "validation/benchmarks", "validation/training"

FIO_SECONDS, FIO_JOBS = 60, 4
"""Seconds of each of fio's jobs; laying out the test file and STREAM get as long again."""
BENCHMARK_SECONDS = 1200
TRAINING_SECONDS, TRAINING_RUN_SECONDS = 1200, 300
"""Time limits of the training check, which may have to pull a large image, and of torchrun itself, which takes a minute."""
_MOUNT = "/under-test"


def checks(site: Site) -> tuple[CheckMaker, ...]:
    """Return the makers of the site's tasks, in running order; none below level full."""
    validation = site.spec.validation
    if validation.level != FULL:
        return ()
    between = validation_tasks.measures_between(site)
    return (*((benchmarks,) if validation.benchmarks else ()), *((training,) if validation.training and between else ()))


def benchmarks(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that measures storage and memory of each node, at the same time on all."""
    wanted = site.spec.validation.benchmarks
    assert wanted is not None
    storage = wanted.storage
    settings = {
        "FOLDER": _MOUNT if storage else "",
        "SIZE": storage.size if storage else "",
        "SECONDS_A_TEST": str(FIO_SECONDS),
        "SECONDS_A_RUN": str(2 * FIO_JOBS * FIO_SECONDS),
    }
    env = [manifest_objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]
    container = manifest_objects.container(wanted.image, manifest_objects.script("node_benchmarks.sh"), env=env)
    container |= {"volumeMounts": [{"name": "under-test", "mountPath": _MOUNT}]} if storage else {}
    pod: Object = {"containers": [container], **({"volumes": [_volume(site)]} if storage else {})}
    expectations: Object = {"storage": storage is not None}
    expectations |= {"floors": storage.floors} if storage and storage.floors else {}
    expectations |= {"stream": wanted.stream_floor_mb_s} if wanted.stream_floor_mb_s else {}
    return manifest_objects.check_step(
        STAGE,
        BENCHMARKS,
        BENCHMARKS_CHECK,
        [manifest_objects.per_node_job(STAGE, BENCHMARKS_CHECK, pod, seconds=BENCHMARK_SECONDS - 30)],
        deadline=BENCHMARK_SECONDS,
        expectations=expectations,
        name=site.named("benchmarks"),
        waits_for=after,
        passed=passed,
        select=site.gpu_select,
    )


def _volume(site: Site) -> Object:
    """Return the volume under test: a folder of the node, or a volume of the storage class for each pod, which goes with it."""
    wanted = site.spec.validation.benchmarks
    storage = wanted.storage if wanted else None
    assert storage is not None
    if storage.path is not None:
        return {"name": "under-test", "hostPath": {"path": storage.path, "type": "Directory"}}
    # two file sizes: file systems keep a part of a volume for themselves
    number, unit = storage.size.rstrip("KMG"), storage.size.lstrip("0123456789")
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage.storage_class,
        "resources": {"requests": {"storage": f"{2 * int(number)}{unit}i" if unit else str(2 * int(number))}},
    }
    return {"name": "under-test", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def training(site: Site, after: tuple[str, ...], passed: tuple[str, ...]) -> Step:
    """Return the task that runs torchrun on two of the nodes that passed, with all their GPUs and fabric ports."""
    wanted = site.spec.validation.training
    assert wanted is not None
    rdma = site.spec.fabric.kind != "none"
    settings = {"JOB": TRAINING_CHECK, "SERVICE": TRAINING_CHECK, "SECONDS_A_RUN": str(TRAINING_RUN_SECONDS)}
    env = [manifest_objects.node_name(), *({"name": name, "value": value} for name, value in settings.items())]
    env += validation_tasks.adapters(site)
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    script = manifest_objects.packed_script("torch_training.sh")
    container = manifest_objects.container(wanted.image, script, env=env, volumeMounts=mounts)
    pod = manifest_objects.gpu_pod(site, container, TRAINING_CHECK, fabric=True)
    pod |= {"subdomain": TRAINING_CHECK, "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    job = manifest_objects.per_node_job(STAGE, TRAINING_CHECK, pod, seconds=TRAINING_SECONDS - 30)
    job["spec"] |= {"completions": 2, "parallelism": 2}
    job["spec"]["template"]["metadata"] |= validation_tasks.network_annotations(site)
    expectations: Object = {"gpus": validation_tasks.slots(site), "rdma": rdma}
    expectations |= {"floor": wanted.all_reduce_floor_gb_s} if wanted.all_reduce_floor_gb_s else {}
    service = manifest_objects.ring_service(STAGE, TRAINING_CHECK, TRAINING_CHECK, {"clusterIP": "None"})
    return validation_tasks.check(
        site,
        "training",
        TRAINING,
        TRAINING_CHECK,
        [service, job],
        after=after,
        passed=passed,
        seconds=TRAINING_SECONDS,
        expectations=expectations,
        rules=(manifest_objects.SERVICE_RIGHTS,),
        least=2,
    )
