"""Tasks of stage slurm that prove the cluster by jobs of each kind (gate slurm/scheduling).

Facts: `steps/docs/facts/slurm.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.spec.cluster_spec import slurm_groups
from workflows.spec.machines import Machine
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Object, Rule, Site, Step, task

SCHEDULING = "slurm/scheduling"
JOBS_CHECK = "slurm-jobs"
SCHEDULING_SECONDS = 900
MARKS = "/run/bringup"
"""Folder of slurmd pods for the marks of prolog and epilog, `MARKS` of `steps.stages.slurm.contract`."""


def job_checks(site: Site, members: Sequence[Machine], *, gpus: bool) -> Iterator[str]:
    """Yield the checks of gate slurm/scheduling that this spec allows, in the order in which they are judged."""
    yield "batch"
    if len(members) > 1:
        yield "two"
    yield from ("array", "dependency", "het", "steps", "memory")
    if gpus:
        yield "gpu"
    yield "exclusive"
    if site.spec.slurm.login.replicas:
        yield "login"
    yield "restart"


def join_pod(site: Site, cluster: PlannedRelease, image: str, script: str, env: Sequence[Object]) -> Object:
    """Return the spec of a pod that joins Slinky's cluster as a login host does: it mounts the key, and resolves slurmd pods."""
    own = [
        manifest_objects.node_name(),
        {"name": "SERVER", "value": f"{cluster.release_name}-controller.{cluster.namespace}:6817"},
        *env,
        *([{"name": "ACCOUNTING", "value": "yes"}] if site.spec.slurm.accounting else []),
    ]
    mounts: list[Object] = [{"name": "key", "mountPath": "/key", "readOnly": True}]
    return {
        "volumes": [{"name": "key", "secret": {"secretName": f"{cluster.release_name}-auth-slurm"}}],
        "dnsConfig": {"searches": [f"slurm-workers-{cluster.release_name}.{cluster.namespace}.svc.cluster.local"]},
        "containers": [manifest_objects.container(image, script, env=own, volumeMounts=mounts)],
    }


def scheduling(
    site: Site, cluster: PlannedRelease, image: str, members: Sequence[Machine], select: str, further: Object, rules: Sequence[Rule]
) -> Step:
    """Return the task that submits jobs of each kind and compares Slurm's own settings with the plan."""
    gpus = "gpus" in further
    checks = list(job_checks(site, members, gpus=gpus))
    space = (cluster.namespace,)
    env = [
        {"name": "CHECKS", "value": " ".join(checks)},
        {"name": "SECONDS_TO_RUN", "value": str(SCHEDULING_SECONDS - 120)},
        {"name": "MARKS", "value": MARKS},
        {"name": "LOGIN", "value": f"{cluster.release_name}-login-slinky.{cluster.namespace}"},
    ]
    pod = join_pod(site, cluster, image, manifest_objects.packed_script("slurm_jobs.sh"), env)
    job = manifest_objects.single_job("slurm", JOBS_CHECK, pod, seconds=SCHEDULING_SECONDS - 30)
    arguments: Object = {
        "gate": SCHEDULING,
        "objects": [{**job, "metadata": {**job["metadata"], "namespace": cluster.namespace}}],
        "checks": [JOBS_CHECK],
        "namespace": cluster.namespace,
        "select": select,
        # its jobs need idle nodes, which the check before it holds
        "after": ["nodes", "functional"],
        **further["place"],
    }
    return Step(
        task=task(
            "slurm",
            "scheduling",
            Verb.JOB,
            deadline=SCHEDULING_SECONDS,
            arguments=arguments,
            expectations=_expectations(site, checks, further.get("gpus", "")),
        ),
        after=("functional",),
        rules=(
            *rights.CLAIM,
            Rule(groups=("batch",), resources=("jobs",), verbs=("create", "delete"), namespaces=space),
            Rule(groups=("",), resources=("pods",), verbs=("list", "deletecollection"), namespaces=space),
            *rules,
        ),
    )


def _expectations(site: Site, checks: Sequence[str], gres: str) -> Object:
    partitions = {partition.name: list(partition.groups) for partition in site.spec.slurm.partitions}
    return {
        "checks": list(checks),
        "partitions": partitions or {"all": list(slurm_groups(site.spec))},
        **({"gres": gres} if gres else {}),
        **({"accounting": True} if site.spec.slurm.accounting else {}),
    }
