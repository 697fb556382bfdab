"""Stage slurm: Slurm on Kubernetes by Slinky or SUNK, proven by sinfo and srun on every node (gpu_stack §7)."""

from __future__ import annotations

from collections.abc import Iterable

from steps.contract.task import Verb
from workflows.catalog import Release
from workflows.spec.cluster import ClusterSpec
from workflows.spec.derived import slurm_groups
from workflows.spec.fields import StageName
from workflows.spec.machines import Machine
from workflows.stages import objects, rights
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

STAGE: StageName = "slurm"
CHECK = "srun"
CHARTS, CONTROL = "slurm/charts", "slurm/control"
NODES, FUNCTIONAL = "slurm/nodes", "slurm/functional"

CONTROL_SECONDS = 2400
"""Images of slurmctld, slurmd and login are pulled first (2 GB on each node), then every slurmd registers."""
NODES_SECONDS = 600
FUNCTIONAL_SECONDS = 900

LOGIN_IMAGE = "ghcr.io/slinkyproject/login:26.05-ubuntu26.04"
"""The chart's own login image (slurm chart 1.2.1, loginsetDefaults.login.image): it has srun, sinfo and sackd."""

_WORKLOADS = {"slurm_operator_crds": 0, "slurm_operator": 2, "slurm": 0, "sunk": 1, "sunk_slurm": 1}
"""Workloads that a chart itself brings; Slinky's chart `slurm` brings resources of which the operator makes workloads."""
_CLUSTER = ("slurm", "sunk_slurm")
"""Releases that are installed once the operator's kinds are served."""


def build(site: Site) -> Stage | None:
    """The stage of a site; None where the spec wants no Slurm."""
    if site.spec.slurm.kind == "none":
        return None
    found = objects.releases(site, STAGE)
    operator = tuple(release for release in found if release.id not in _CLUSTER)
    cluster = next(release for release in found if release.id in _CLUSTER)
    slinky = site.spec.slurm.kind == "slinky"
    gates = {"charts": CHARTS, "control": CONTROL, "nodes": NODES} | ({"functional": FUNCTIONAL} if slinky else {})
    steps = [
        *(_by_root(site, found, cluster) if objects.by_argo_cd(site, found) else (_apply(site, operator),)),
        _charts(site, operator),
        *(() if objects.by_argo_cd(site, found) else (_configure(site, cluster),)),
        _control(site, found, cluster),
        _nodes(site, cluster),
        *([_functional(site, cluster)] if slinky else []),
        objects.judge(site, STAGE, gates, members=select(site)),
    ]
    return Stage(
        id=STAGE,
        title="Slurm on Kubernetes",
        steps=tuple(steps),
        gates=tuple(gates.values()),
        changes=_changes(site, found),
        rollback=cluster.rollback,
        releases=tuple(release.id for release in found),
    )


def _changes(site: Site, found: Iterable[Release]) -> tuple[Change, ...]:
    installs = [Change(what=f"install {release.release_name} {release.version}", where=release.namespace) for release in found]
    return (*installs, Change(what="run slurmd, which holds the node's GPUs", where=f"{len(machines(site))} nodes"))


# ---- who takes part ------------------------------------------------------------------------------------------------------------


def machines(site: Site) -> tuple[Machine, ...]:
    """The machines that run Slurm."""
    chosen = set(slurm_groups(site.spec))
    return tuple(machine for machine in site.machines if machine.group in chosen)


def select(site: Site) -> str:
    """The selector that takes exactly these machines."""
    chosen = {machine.name for machine in machines(site)}
    simple = {
        "gpu": {machine.name for machine in site.machines if machine.gpu},
        "agent": {machine.name for machine in site.machines if machine.role == "agent"},
        "all": {machine.name for machine in site.machines},
    }
    return next((word for word, names in simple.items() if names == chosen), f"group:{','.join(slurm_groups(site.spec))}")


def gpus(site: Site) -> int:
    """GPUs that Slurm must have on every node; 0 where nodes differ, have none, or share them."""
    counts = {machine.gpus for machine in machines(site)}
    return counts.pop() if len(counts) == 1 and site.spec.sharing.mode == "none" else 0


# ---- operator ------------------------------------------------------------------------------------------------------------------

_CRDS = Rule(groups=("apiextensions.k8s.io",), resources=("customresourcedefinitions",), verbs=("get",))


def _expected(site: Site, found: Iterable[Release]) -> list[Object]:
    return [objects.expected(site, release, workloads=_WORKLOADS.get(release.id, 1)) for release in found]


def _chart_expectations(site: Site, operator: tuple[Release, ...]) -> Object:
    crds = [name for release in operator for name in release.crds]
    return {"releases": _expected(site, operator), **({"crds": crds} if crds else {})}


def _apply(site: Site, operator: tuple[Release, ...]) -> Step:
    arguments = {
        "objects": objects.release_objects(site, operator),
        "gate": CHARTS,
        "gate_expectations": _chart_expectations(site, operator),
    }
    return Step(
        task=task(STAGE, "apply", Verb.APPLY, deadline=300, arguments=arguments),
        rules=(*rights.release_rules(site, operator), _CRDS),
    )


def _by_root(site: Site, found: tuple[Release, ...], cluster: Release) -> tuple[Step, ...]:
    """With Argo CD: one root over all charts, whose waves bring the cluster once the operator is healthy."""
    arguments = {
        "objects": objects.release_objects(site, found),
        "gate": CONTROL,
        "select": select(site),
        "slurm_namespace": cluster.namespace,
        "gate_expectations": _control_expectations(site, found),
    }
    rules = (*rights.release_rules(site, found), *_reads(cluster.namespace), _CRDS)
    return (Step(task=task(STAGE, "apply", Verb.APPLY, deadline=300, arguments=arguments), rules=rules),)


def _charts(site: Site, operator: tuple[Release, ...]) -> Step:
    expectations = _chart_expectations(site, operator)
    seconds = max(release.timeout_seconds for release in operator) + 300
    arguments = {"gate": CHARTS, "namespaces": sorted({release.namespace for release in operator}), **expectations}
    return Step(
        task=task(STAGE, "charts", Verb.WAIT, deadline=seconds, arguments=arguments, expectations=expectations),
        after=("apply",),
        rules=(*rights.gate_rules(site, operator), _CRDS),
    )


# ---- the cluster ---------------------------------------------------------------------------------------------------------------


def _parts(spec: ClusterSpec) -> list[str]:
    return ["Controller", "RestApi", *(["LoginSet"] if spec.slurm.login.replicas else [])]


def _control_expectations(site: Site, found: tuple[Release, ...]) -> Object:
    expectations: Object = {"releases": _expected(site, found), **objects.root_app(site, found)}
    if site.spec.slurm.kind == "slinky":
        parts, members = _parts(site.spec), machines(site)
        expectations |= {
            "parts": parts,
            "workloads": len(parts),
            "nodes_desired": len(members),
            "spare": len(members) - site.spec.quorum.share(STAGE).needed(len(members)),
        }
    return expectations


def _reads(namespace: str) -> tuple[Rule, ...]:
    space = (namespace,)
    kinds = ("controllers", "restapis", "loginsets", "nodesets")
    return (
        Rule(groups=("slinky.slurm.net",), resources=kinds, verbs=("list",), namespaces=space),
        Rule(groups=("apps",), resources=("deployments", "statefulsets"), verbs=("list",), namespaces=space),
        Rule(groups=("",), resources=("nodes",), verbs=("list",)),
        *rights.DIAGNOSE,
    )


def _configure(site: Site, cluster: Release) -> Step:
    found = (*(release for release in objects.releases(site, STAGE) if release.id not in _CLUSTER), cluster)
    arguments = {
        "objects": objects.release_objects(site, (cluster,)),
        "gate": CONTROL,
        "select": select(site),
        "slurm_namespace": cluster.namespace,
        "gate_expectations": _control_expectations(site, found),
    }
    return Step(
        task=task(STAGE, "configure", Verb.APPLY, deadline=300, arguments=arguments),
        after=("charts",),
        rules=(*rights.release_rules(site, (cluster,)), *rights.gate_rules(site, found), *_reads(cluster.namespace)),
    )


def _control(site: Site, found: tuple[Release, ...], cluster: Release) -> Step:
    expectations = _control_expectations(site, found)
    arguments = {
        "gate": CONTROL,
        "select": select(site),
        "stable_seconds": 20,
        "namespaces": [cluster.namespace],
        "slurm_namespace": cluster.namespace,
        "releases": expectations["releases"],
        **objects.root_app(site, found),
    }
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=CONTROL_SECONDS, arguments=arguments, expectations=expectations),
        after=("charts",) if objects.by_argo_cd(site, found) else ("configure",),
        rules=(*rights.gate_rules(site, found), *_reads(cluster.namespace)),
    )


def _nodes(site: Site, cluster: Release) -> Step:
    slinky = site.spec.slurm.kind == "slinky"
    arguments = {
        "gate": NODES,
        "select": select(site),
        "decides": False,
        "stable_seconds": 10,
        "namespaces": [cluster.namespace],
        "slurm_namespace": cluster.namespace,
    }
    return Step(
        task=task(
            STAGE,
            "nodes",
            Verb.WAIT,
            deadline=NODES_SECONDS,
            arguments=arguments,
            expectations={"gpus": gpus(site), "states": slinky, "promised": slinky},
        ),
        after=("control",),
        rules=_reads(cluster.namespace),
    )


# ---- srun ----------------------------------------------------------------------------------------------------------------------


def _functional(site: Site, cluster: Release) -> Step:
    """The check runs in Slurm's own namespace, because it mounts the cluster's key, and Secrets do not cross namespaces.

    SUNK has none: how a foreign pod authenticates there is not public (gpu_stack §7.1, §12).
    """
    space = (cluster.namespace,)
    arguments = {
        "gate": FUNCTIONAL,
        "objects": [_job(site, cluster)],
        "checks": [CHECK],
        "namespace": cluster.namespace,
        "select": select(site),
        "after": ["nodes"],
        "slurm_namespace": cluster.namespace,
    }
    return Step(
        task=task(
            STAGE,
            "functional",
            Verb.JOB,
            deadline=FUNCTIONAL_SECONDS,
            arguments=arguments,
            expectations={"gpus": gpus(site)},
        ),
        after=("nodes",),
        rules=(
            *rights.CLAIM,
            Rule(groups=("batch",), resources=("jobs",), verbs=("create", "delete"), namespaces=space),
            Rule(groups=("",), resources=("pods",), verbs=("list", "deletecollection"), namespaces=space),
            *_reads(cluster.namespace),
        ),
    )


def _job(site: Site, cluster: Release) -> Object:
    env = [
        objects.node_name(),
        {"name": "SERVER", "value": f"{cluster.release_name}-controller.{cluster.namespace}:6817"},
        {"name": "GPUS", "value": str(gpus(site))},
        {"name": "SECONDS_TO_RUN", "value": str(FUNCTIONAL_SECONDS - 120)},
    ]
    mounts = [{"name": "key", "mountPath": "/key", "readOnly": True}]
    pod = {
        "volumes": [{"name": "key", "secret": {"secretName": f"{cluster.release_name}-auth-slurm"}}],
        "dnsConfig": {"searches": [f"slurm-workers-{cluster.release_name}.{cluster.namespace}.svc.cluster.local"]},
        "containers": [objects.container(LOGIN_IMAGE, objects.script("srun.sh"), env=env, volumeMounts=mounts)],
    }
    job = objects.single_job(STAGE, CHECK, pod, seconds=FUNCTIONAL_SECONDS - 30)
    return {**job, "metadata": {**job["metadata"], "namespace": cluster.namespace}}
