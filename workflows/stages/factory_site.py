"""Input of the builders of a factory's stages, and the parts that they share: names, labels, and the chart of Argo Workflows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from steps.contract.task import Verb
from steps.stages.factory_argo.contract import REQUEUE
from workflows.catalog import PlannedRelease
from workflows.spec.pipelines.factory_spec import FactorySpec
from workflows.stage_names import StageName
from workflows.stages import manifest_objects
from workflows.stages.stage import Object, Rule, Site, Step, task

MANAGER = {"app.kubernetes.io/managed-by": "bringup"}
"""Label of a factory's objects that no chart installs."""
REGISTRY_SPACE, ARGO_SPACE = "registry", "argo"
"""Namespaces of the registry and of Argo Workflows."""
POD_GC_STRATEGY = "OnPodSuccess"
"""Pods that succeeded are deleted; those that failed stay for whoever looks for the cause."""


@dataclass(frozen=True, kw_only=True)
class FactorySite(Site):
    """A resolved factory spec: the site of the Kubernetes below, the spec itself, and the files of its pipelines by path."""

    factory: FactorySpec
    pipelines: Mapping[str, tuple[Object, ...]]
    """Path of a pipeline file → its objects."""


def stage_name(stage: str) -> StageName:
    """Return the id of a factory's stage in the type of a bring-up's ids, which quorums and releases are declared with."""
    return cast(StageName, stage)


def metadata(name: str, namespace: str = "", **labels: str) -> Object:
    """Return the metadata of a factory's object with its labels; cluster-wide without a namespace."""
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": {**MANAGER, **labels}}


def namespace(name: str, **labels: str) -> Object:
    """Return a Namespace of a factory."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(name, **labels)}


def control_step(
    stage: str,
    deadline: int,
    expectations: Object,
    rules: tuple[Rule, ...],
    *,
    after: tuple[str, ...] = ("apply",),
    stable_seconds: int = 10,
    **arguments: object,
) -> Step:
    """Return the task that waits for gate STAGE/control after the tasks that apply; `deadline` is in seconds.

    A pass must last for `stable_seconds`: 0 for a stage without pods, whose objects do not restart.
    """
    return Step(
        task=task(
            stage,
            "control",
            Verb.WAIT,
            deadline=deadline,
            arguments={"gate": f"{stage}/control", "stable_seconds": stable_seconds, **arguments},
            expectations=expectations,
        ),
        after=after,
        rules=rules,
    )


def judge(site: Site, stage: str, gates: Mapping[str, str]) -> Step:
    """Return the task that decides a stage of a factory, of which every machine counts and none is cordoned."""
    return manifest_objects.judge(site, stage_name(stage), gates, members="all", cordon=False)


def duration(time: timedelta) -> str:
    """Return a time as Argo's settings have it, in whole seconds."""
    return f"{int(time.total_seconds())}s"


def argo_release(factory: FactorySpec) -> PlannedRelease:
    """Return the release of Argo Workflows with its controller's settings.

    Values are those of the chart (https://github.com/argoproj/argo-helm/blob/main/charts/argo-workflows/values.yaml). Strict
    template referencing lets only installed WorkflowTemplates run.
    """
    argo = factory.argo
    controller: Object = {
        "workflowNamespaces": sorted(factory.projects),
        "parallelism": argo.parallelism,
        "namespaceParallelism": argo.project_parallelism,
        "workflowWorkers": argo.workers,
        "resourceRateLimit": {"limit": argo.rate_limit.limit, "burst": argo.rate_limit.burst},
        "workflowRestrictions": {"templateReferencing": "Strict"},
        "podGCDeleteDelayDuration": duration(argo.pod_gc_delay),
        "workflowDefaults": {"spec": {"podGC": {"strategy": POD_GC_STRATEGY}}},
        "extraEnv": [{"name": REQUEUE, "value": duration(argo.requeue)}],
    }
    oci = argo.repo.startswith("oci://")
    chart, repo = (f"{argo.repo.rstrip('/')}/argo-workflows", "") if oci else ("argo-workflows", argo.repo)
    return PlannedRelease(
        id="argo_workflows",
        component="argo_workflows",
        stage=stage_name("factory_argo"),
        source=f"{repo} {chart}".strip(),
        chart=chart,
        repo=repo,
        manifest="",
        version=argo.chart,
        digest="",
        namespace=ARGO_SPACE,
        privileged=False,
        release_name="argo-workflows",
        values={
            "images": {"tag": argo.version, "pullPolicy": "IfNotPresent"},
            "singleNamespace": False,
            "controller": controller,
            "server": {"enabled": False},
        },
        objects=(),
        rollout="rolling_update",
        health="the controller is ready and carries out a Workflow of two steps",
        rollback="pin the release before; the chart keeps its CRDs, and thereby every Workflow",
        gates=("factory_argo/control", "factory_argo/functional"),
        needs=(),
        crds=ARGO_CRDS,
        provides=(),
        kubernetes=None,
        timeout_seconds=600,
        app_version=argo.version,
    )


ARGO_CRDS = (
    "workflows.argoproj.io",
    "workflowtemplates.argoproj.io",
    "cronworkflows.argoproj.io",
    "workflowtaskresults.argoproj.io",
)
"""Kinds without which Argo Workflows does nothing."""
