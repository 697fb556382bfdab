"""Reads Argo Workflows' chart, kinds and settings, and the Workflows of the check with their pods."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from steps.contract.objects.checks import CHECK_NAMESPACE
from steps.stages.factory_argo.contract import POD_GC, REQUEUE, WORKERS, CheckWorkflow, ControlObservation, FunctionalObservation
from steps.stages.shared import probe_charts, probe_checks
from steps.stages.shared.kube_objects import ContainerProgram, ObjectMeta, ProgramPodSpec, WorkloadObject
from steps.stages.shared.kube_reader import KubeReader, Scope

SPACE, CONFIG_MAP = "argo", "argo-workflows-workflow-controller-configmap"
CONTROLLER, CONTAINER = "argo-workflows-workflow-controller", "controller"
CHECK, INLINE = "workflow", "workflow-inline"
MOST = 100_000
"""Most characters of the controller's configuration that are read."""
LONGEST = 100
"""Most characters of a setting's value that are kept."""
_PATHS = (
    ("templateReferencing", ("workflowRestrictions", "templateReferencing")),
    ("parallelism", ("parallelism",)),
    ("namespaceParallelism", ("namespaceParallelism",)),
    ("limit", ("resourceRateLimit", "limit")),
    ("burst", ("resourceRateLimit", "burst")),
    ("podGCDeleteDelayDuration", ("podGCDeleteDelayDuration",)),
    (POD_GC, ("workflowDefaults", "spec", "podGC", "strategy")),
)
"""Setting and its place in the controller's configuration: the name of a key says nothing in another place."""


class _ConfigMap(Struct, frozen=True):
    """A ConfigMap as the API returns it."""

    data: dict[str, str] = {}


class _Parameter(Struct, frozen=True):
    name: str = ""
    value: str | int | float | bool | None = None


class _Outputs(Struct, frozen=True):
    parameters: tuple[_Parameter, ...] = ()


class _WorkflowNode(Struct, frozen=True):
    """A node in a Workflow's status."""

    type: str = ""
    phase: str = ""
    outputs: _Outputs | None = None


class _WorkflowStatus(Struct, frozen=True):
    phase: str = ""
    message: str = ""
    nodes: dict[str, _WorkflowNode] = {}


class _RawWorkflow(Struct, frozen=True):
    """A Workflow as the API returns it. The node of the entrypoint has the Workflow's name as its id."""

    metadata: ObjectMeta = ObjectMeta()
    status: _WorkflowStatus = _WorkflowStatus()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return the chart, the kinds that the task names, and the settings in the controller's ConfigMap and Deployment."""
    config = kube.get(f"/api/v1/namespaces/{SPACE}/configmaps/{CONFIG_MAP}", _ConfigMap)
    deployment = kube.get(f"/apis/apps/v1/namespaces/{SPACE}/deployments/{CONTROLLER}", WorkloadObject[ProgramPodSpec])
    settings = None if config is None else dict([*_configured(config), *(_started_with(deployment.pod) if deployment else ())])
    return ControlObservation(
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        crds=probe_charts.read_crds(kube, probe_charts.read_argument(scope, "crds")),
        settings=settings,
    )


def _configured(config: _ConfigMap) -> Iterator[tuple[str, str]]:
    """Yield the settings in a ConfigMap; none if its text is no YAML, with which the controller does not start either."""
    import yaml  # 30 ms that only this stage pays

    try:
        document: Any = yaml.safe_load(config.data.get("config", "")[:MOST])
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    for name, path in _PATHS:
        value = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str | int):
            yield name, str(value)[:LONGEST]


def _started_with(pod: ProgramPodSpec) -> Iterator[tuple[str, str]]:
    """Yield the variable and the argument of the controller's container; of several the last one holds."""
    container = next((entry for entry in pod.containers if entry.name == CONTAINER), ContainerProgram())
    for variable in container.env:
        if variable.name == REQUEUE:
            yield REQUEUE, (variable.value or "")[:LONGEST]
    option = f"--{WORKERS}"
    for word, following in zip(container.args, (*container.args[1:], ""), strict=False):
        if word == option or word.startswith(f"{option}="):
            yield WORKERS, (following if word == option else word.partition("=")[2])[:LONGEST]


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return both Workflows of the check, and its pods."""
    return FunctionalObservation(
        workflow=_workflow(kube, CHECK), inline=_workflow(kube, INLINE), pods=probe_checks.read(kube, CHECK)
    )


def _workflow(kube: KubeReader, name: str) -> CheckWorkflow | None:
    raw = kube.get(f"/apis/argoproj.io/v1alpha1/namespaces/{CHECK_NAMESPACE}/workflows/{name}", _RawWorkflow)
    if raw is None:
        return None
    entry = raw.status.nodes.get(name, _WorkflowNode())
    answers = (parameter.value for parameter in (entry.outputs or _Outputs()).parameters if parameter.name == "answer")
    return CheckWorkflow(
        uid=raw.metadata.uid,
        phase=raw.status.phase,
        message=raw.status.message,
        answer=str(next(answers, "") or ""),
        pods=sum(node.type == "Pod" and node.phase == "Succeeded" for node in raw.status.nodes.values()),
    )
