"""Reads Argo Workflows' chart, kinds and settings, and the Workflows of the check with their pods."""

import re

from msgspec import Struct

from steps.contract.checks import CHECK_NAMESPACE
from steps.stages.factory_argo.contract import CheckWorkflow, ControlObservation, FunctionalObservation
from steps.stages.shared import probe_charts, probe_checks
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_workloads import ObjectMeta

SPACE, CONFIG_MAP = "argo", "argo-workflows-workflow-controller-configmap"
CHECK, INLINE = "workflow", "workflow-inline"
MOST = 100_000
"""Most characters of the controller's configuration that are read."""
_SCALAR = re.compile(r"^[ \t]*([A-Za-z]{1,60}):[ \t]+[\"']?([^\s\"']{1,100})[\"']?[ \t]*$", re.MULTILINE)
"""A scalar of the YAML that the chart writes; the settings that are compared have unique keys, so nesting is not needed."""


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
    """Return the chart, the kinds that the task names, and the settings in the controller's ConfigMap."""
    config = kube.get(f"/api/v1/namespaces/{SPACE}/configmaps/{CONFIG_MAP}", _ConfigMap)
    return ControlObservation(
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        crds=probe_charts.read_crds(kube, probe_charts.read_argument(scope, "crds")),
        settings=None if config is None else dict(_SCALAR.findall(config.data.get("config", "")[:MOST])),
    )


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
