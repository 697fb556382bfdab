"""Tasks of gates slurm/placement, slurm/scheduling, slurm/drain and slurm/pods, and where their checks run.

Facts: `steps/docs/facts/slurm.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.slurm_values import MARKS, lock_toleration
from workflows.spec.cluster_spec import slurm_groups
from workflows.spec.machines import Machine
from workflows.spec.parsing.document import value_at
from workflows.spec.sections.slurm_section import sharing_check
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Object, Rule, Site, Step, task

SCHEDULING, PLACEMENT, DRAIN, PODS = "slurm/scheduling", "slurm/placement", "slurm/drain", "slurm/pods"
JOBS_CHECK = "slurm-jobs"
SCHEDULING_SECONDS = 900
PLACEMENT_SECONDS, DRAIN_SECONDS, PODS_SECONDS = 600, 900, 600
PODS_CHECK, LOCK_CHECK = "slurm-pods", "slurm-lock"
SCHEDULED_PODS = 3
GRACE = 20
"""Seconds of grace of pods that SUNK's scheduler takes: less than KillWait - 5 s, which is 25 by default."""
MAY_LEAVE = ("kube-system/rke2-ingress-nginx-controller",)
"""DaemonSets that SUNK's lock may evict from Slurm's nodes: the ingress runs on the others (`ingress_groups` of the spec)."""
CONTAINER, SYSTEM = "alpine:3.19", "Alpine"
"""Image of the job of check `pyxis`, and a word of the name of the system in it."""


def job_checks(site: Site, members: Sequence[Machine], *, gpus: bool, metrics: bool) -> Iterator[str]:
    """Yield the checks of gate slurm/scheduling that this spec allows, in the order in which they are judged.

    `gpus`: Slurm has GPUs; `metrics`: Slurm serves metrics.
    """
    slurm = site.spec.slurm
    yield "batch"
    if len(members) > 1:
        yield "two"
    yield from ("array", "dependency", "het", "steps", "memory")
    if gpus:
        yield "gpu"
    if sharing := sharing_check(slurm.partitions):
        yield sharing
    yield from (kind for kind, scripts in (("prolog", slurm.prolog), ("epilog", slurm.epilog)) if scripts)
    if slurm.home is not None:
        yield "home"
    if slurm.pyxis != "none":
        yield "pyxis"
    if slurm.login.replicas:
        yield "login"
    if slurm.login.test_user and slurm.kind == "sunk":
        yield "user"
    if len(members) > 1:
        yield "pmix"
    if metrics:
        yield "metrics"
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


class CheckSite(NamedTuple):
    """The site as the checks of the stage see it, with the cluster's chart and the machines that take part.

    `gpus` maps each machine to the GPUs that Slurm has there, `gres` is their type in Slurm. `place` are the arguments by which
    probes find Slurm, `reads` the rights that they need. `image` is the login image of Slinky.
    """

    site: Site
    cluster: PlannedRelease
    members: Sequence[Machine]
    select: str
    gpus: Mapping[str, int]
    gres: str
    place: Object
    reads: Sequence[Rule]
    image: str

    @property
    def sunk(self) -> bool:
        """Return True if the checks run as commands in SUNK's login pod."""
        return self.site.spec.slurm.kind == "sunk"

    @property
    def accounting(self) -> bool:
        """Return True if jobs have records: SUNK always has a database."""
        return self.sunk or self.site.spec.slurm.accounting is not None


def tool_pod(cluster: PlannedRelease, *, sunk: bool) -> dict[str, str]:
    """Return pod and container with Slurm's tools and the rights of root: SUNK's first login pod, or Slinky's controller."""
    pod, container = ("login-0", "sshd") if sunk else ("controller-0", "slurmctld")
    return {"pod": f"{cluster.release_name}-{pod}", "container": container}


def login_command(check_site: CheckSite, check: str, script: str, variables: Mapping[str, str]) -> Object:
    """Return the argument `command` of verb job: a check in SUNK's first login pod."""
    own = {"ACCOUNTING": "yes"} if check_site.accounting else {}
    place = {"namespace": check_site.cluster.namespace, **tool_pod(check_site.cluster, sunk=True)}
    return {"command": {**place, "check": check, "script": script, "variables": {**own, **variables}}}


def login_rules(check_site: CheckSite) -> tuple[Rule, ...]:
    """Return the rights of a check in the login pod: whoever may run commands there is root in Slurm."""
    return (*rights.CLAIM, rights.execute(check_site.cluster.namespace), *check_site.reads)


def job_rules(check_site: CheckSite) -> tuple[Rule, ...]:
    """Return the rights of a check in a pod of its own in Slurm's namespace."""
    space = (check_site.cluster.namespace,)
    return (
        *rights.CLAIM,
        Rule(groups=("batch",), resources=("jobs",), verbs=("create", "delete"), namespaces=space),
        Rule(groups=("",), resources=("pods",), verbs=("list", "deletecollection"), namespaces=space),
        *check_site.reads,
    )


def check_job(check_site: CheckSite, check: str, pod: Object, seconds: int) -> Object:
    """Return the arguments of verb job for a check in a pod of Slurm's namespace, where the cluster's key is."""
    job = manifest_objects.single_job("slurm", check, pod, seconds=seconds - 30)
    objects = [{**job, "metadata": {**job["metadata"], "namespace": check_site.cluster.namespace}}]
    return {"objects": objects, "checks": [check], "namespace": check_site.cluster.namespace}


def placement(check_site: CheckSite) -> Step:
    """Return the task that looks for foreign pods on Slurm's nodes, and for pods that SUNK's lock would evict."""
    images = sorted(planned_images(check_site))
    arguments: Object = {
        "gate": PLACEMENT,
        "select": check_site.select,
        # verdicts about nodes are only recorded here: the judge applies the quorum
        "decides": False,
        "stable_seconds": 10,
        "namespaces": [check_site.cluster.namespace],
        **check_site.place,
    }
    expectations: Object = {"images": images} if images else {}
    if check_site.sunk:
        elsewhere = len(check_site.members) < len(check_site.site.machines)
        expectations |= {"lock": True, "elsewhere": elsewhere, "may_leave": list(MAY_LEAVE) if elsewhere else []}
    return Step(
        task=task("slurm", "placement", Verb.WAIT, deadline=PLACEMENT_SECONDS, arguments=arguments, expectations=expectations),
        after=("nodes",),
        rules=tuple(check_site.reads),
    )


def drain(check_site: CheckSite) -> Step:
    """Return the task that drains one node by Slurm, and by a cordon of Kubernetes, and resumes it each time.

    What a cordon does to SUNK's Slurm nodes is not public, so there Slurm's own drain alone is tested.
    """
    script = manifest_objects.script("slurm_drain.sh")
    place = {"namespace": check_site.cluster.namespace, **tool_pod(check_site.cluster, sunk=check_site.sunk)}
    arguments: Object = {
        "gate": DRAIN,
        "round_trip": {**place, "script": script, "cordon": not check_site.sunk},
        "select": check_site.select,
        "after": ["nodes", "functional"],
        **check_site.place,
    }
    cordon = () if check_site.sunk else (Rule(groups=("",), resources=("nodes",), verbs=("get", "patch")),)
    return Step(
        task=task(
            "slurm", "drain", Verb.JOB, deadline=DRAIN_SECONDS, arguments=arguments, expectations={"cordon": not check_site.sunk}
        ),
        after=("scheduling",),
        rules=(*login_rules(check_site), *cordon),
    )


def schedules_pods(site: Site, cluster: PlannedRelease) -> bool:
    """Return True if Slurm schedules pods of Kubernetes too: SUNK's chart has a scheduler for them, Slinky's charts have none."""
    return site.spec.slurm.kind == "sunk" and bool(value_at(cluster.values, "scheduler.enabled"))


def pods(check_site: CheckSite, after: str, *, passed: Sequence[str]) -> Step:
    """Return the task that lets SUNK's scheduler place pods, and runs a pod that tolerates the lock beside one of them.

    It comes after the task `after`, since its pods hold nodes of Slurm; nodes must have passed the tasks `passed`.
    """
    scheduler = str(value_at(check_site.cluster.values, "scheduler.name"))
    # the lock is named for SUNK, and nodes may have taints of their own
    own: Object = {
        "tolerations": [lock_toleration(), {"operator": "Exists"}],
        "terminationGracePeriodSeconds": GRACE,
    }
    near = {"labelSelector": {"matchLabels": {manifest_objects.CHECK_LABEL: PODS_CHECK}}, "topologyKey": manifest_objects.HOSTNAME}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    placed = _pod_job(check_site, PODS_CHECK, {**own, "schedulerName": scheduler}, seconds=30)
    placed["spec"] |= {"completionMode": "Indexed", "completions": SCHEDULED_PODS, "parallelism": SCHEDULED_PODS}
    beside = _pod_job(check_site, LOCK_CHECK, {**own, "affinity": affinity}, seconds=15)
    arguments: Object = {
        "gate": PODS,
        "objects": [placed, beside],
        "checks": [PODS_CHECK, LOCK_CHECK],
        "namespace": check_site.cluster.namespace,
        "select": check_site.select,
        "after": list(passed),
        **check_site.place,
    }
    expectations = {"scheduler": scheduler, "count": SCHEDULED_PODS}
    return Step(
        task=task("slurm", "pods", Verb.JOB, deadline=PODS_SECONDS, arguments=arguments, expectations=expectations),
        after=(after,),
        rules=job_rules(check_site),
    )


def _pod_job(check_site: CheckSite, check: str, pod: Object, *, seconds: int) -> Object:
    env = [manifest_objects.node_name(), {"name": "SECONDS_TO_RUN", "value": str(seconds)}]
    # requests alone: pods with equal limits would get whole CPUs, which drains nodes
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
    script = manifest_objects.script("slurm_pod.sh")
    container = manifest_objects.container(check_site.site.spec.check_image, script, env=env, resources=resources)
    # the pods outlive the gate: a Job whose time is up deletes them, with the reason why they were not placed
    job = manifest_objects.single_job("slurm", check, {**pod, "containers": [container]}, seconds=PODS_SECONDS + 60)
    return {**job, "metadata": {**job["metadata"], "namespace": check_site.cluster.namespace}}


def planned_images(check_site: CheckSite) -> set[str]:
    """Return the images of slurmd that the values name; empty where a group of nodes takes the chart's own."""
    groups: Mapping[str, Object] = check_site.cluster.values.get("compute", {}).get("nodes", {})
    groups = groups or {key: nodeset.get("slurmd", {}) for key, nodeset in check_site.cluster.values.get("nodesets", {}).items()}
    images = {_image(group.get("image")) for group in groups.values()}
    return set() if "" in images else images


def _image(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""
    return f"{value['repository']}:{value['tag']}" if value.get("repository") and value.get("tag") else ""


def scheduling(check_site: CheckSite) -> Step:
    """Return the task that submits jobs of each kind and compares Slurm's own settings with the plan."""
    endpoint, gpus = metrics_endpoint(check_site), any(check_site.gpus.values())
    checks = list(job_checks(check_site.site, check_site.members, gpus=gpus, metrics=bool(endpoint)))
    service = f"{check_site.cluster.release_name}-login" + ("" if check_site.sunk else "-slinky")
    variables = {
        "CHECKS": " ".join(checks),
        "SECONDS_TO_RUN": str(SCHEDULING_SECONDS - 120),
        "MARKS": MARKS,
        "LOGIN": f"{service}.{check_site.cluster.namespace}",
        **({"SHARED_HOME": "/home"} if "home" in checks else {}),
        **({"CONTAINER": CONTAINER} if "pyxis" in checks else {}),
        **({"METRICS": endpoint} if endpoint else {}),
        **({"USER_NAME": str(check_site.site.spec.slurm.login.test_user)} if "user" in checks else {}),
    }
    script = manifest_objects.packed_script("slurm_jobs.sh")
    if check_site.sunk:
        how = login_command(check_site, JOBS_CHECK, script, variables)
    else:
        pod = join_pod(
            check_site.site,
            check_site.cluster,
            check_site.image,
            script,
            [{"name": key, "value": value} for key, value in variables.items()],
        )
        how = check_job(check_site, JOBS_CHECK, pod, SCHEDULING_SECONDS)
    # its jobs need idle nodes, which the check before it holds
    arguments: Object = {
        "gate": SCHEDULING,
        **how,
        "select": check_site.select,
        "after": ["nodes", "functional"],
        **check_site.place,
    }
    return Step(
        task=task(
            "slurm",
            "scheduling",
            Verb.JOB,
            deadline=SCHEDULING_SECONDS,
            arguments=arguments,
            expectations=_expectations(check_site, checks),
        ),
        after=("functional",),
        rules=login_rules(check_site) if check_site.sunk else job_rules(check_site),
    )


def metrics_endpoint(check_site: CheckSite) -> str:
    """Return where Slurm serves its metrics, as HOST:PORT/PATH: SUNK's syncer, or Slinky's slurmctld if the values turn them on."""
    release, values = check_site.cluster.release_name, check_site.cluster.values
    if check_site.sunk:
        return f"{release}-syncer.{check_site.cluster.namespace}:8080/metrics" if value_at(values, "syncer.enabled") else ""
    served = value_at(values, "controller.metrics.enabled")
    return f"{release}-controller.{check_site.cluster.namespace}:6817/metrics/nodes" if served else ""


def _metrics(check_site: CheckSite) -> Object:
    """Return the metrics that Slurm must serve, each with what its values add up to."""
    if not check_site.sunk:
        return {"slurm_nodes": "nodes"}
    return {"slurm_nodes_total": "nodes", **({"slurm_partition_gpu_total": "gpus"} if any(check_site.gpus.values()) else {})}


_CONFINED = re.compile(r"^\s*ConstrainDevices\s*=\s*(yes|true|up|1)\s*(#.*)?$", re.IGNORECASE | re.MULTILINE)


def _confines(cluster: PlannedRelease) -> bool:
    """Return True if cgroup.conf in the values confines jobs to their devices. SUNK's values have none."""
    files = cluster.values.get("configFiles")
    return isinstance(files, Mapping) and _CONFINED.search(str(files.get("cgroup.conf", ""))) is not None


def _expectations(check_site: CheckSite, checks: Sequence[str]) -> Object:
    spec = check_site.site.spec
    groups = {partition.name: list(partition.groups) for partition in spec.slurm.partitions}
    sharing = {partition.name: partition.oversubscribe for partition in spec.slurm.partitions if partition.oversubscribe}
    if check_site.sunk and not groups:  # SUNK has a partition of the name of each group of nodes
        groups = {name.replace("_", "-"): [name] for name in slurm_groups(spec)}
    return {
        "checks": list(checks),
        "partitions": groups or {"all": list(slurm_groups(spec))},
        **({"oversubscribe": sharing} if sharing else {}),
        **({"gres": check_site.gres} if check_site.gres else {}),
        **({"isolated": True} if "gpu" in checks and _confines(check_site.cluster) else {}),
        **({"accounting": True} if check_site.accounting else {}),
        **({"qos": [qos.name for qos in spec.slurm.qos]} if spec.slurm.qos else {}),
        **({"tree": True} if spec.slurm.topology == "tree" else {}),
        **({"container": SYSTEM} if "pyxis" in checks else {}),
        **({"metrics": _metrics(check_site)} if "metrics" in checks else {}),
    }
