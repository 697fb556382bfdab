"""Reads the WorkflowTemplates and CronWorkflows of the projects of a factory."""

from typing import Any

from msgspec import Struct

from steps.contract.canonical import digest
from steps.stages.factory_pipelines.contract import ControlObservation, InstalledSchedule, InstalledTemplate
from steps.stages.shared.kube_objects import Condition, ObjectMeta
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_charts import read_argument

_API = "/apis/argoproj.io/v1alpha1/namespaces"


class _RawTemplate(Struct, frozen=True):
    """A WorkflowTemplate as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class _TemplateRef(Struct, frozen=True):
    name: str = ""


class _CronWorkflowSpec(Struct, frozen=True, rename="camel"):
    workflow_template_ref: _TemplateRef = _TemplateRef()


class _CronSpec(Struct, frozen=True, rename="camel"):
    schedules: tuple[str, ...] = ()
    suspend: bool = False
    workflow_spec: _CronWorkflowSpec = _CronWorkflowSpec()


class _CronStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class _RawCron(Struct, frozen=True):
    """A CronWorkflow as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _CronSpec = _CronSpec()
    status: _CronStatus | None = None


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return the templates and schedules of the projects whose released templates the task names."""
    projects = sorted({str(name).partition("/")[0] for name in read_argument(scope, "templates")})
    templates = [raw for name in projects for raw in kube.list(f"{_API}/{name}/workflowtemplates", _RawTemplate) or ()]
    crons = [raw for name in projects for raw in kube.list(f"{_API}/{name}/cronworkflows", _RawCron) or ()]
    return ControlObservation(
        templates=tuple(InstalledTemplate(name=_full_name(raw.metadata), digest=digest(raw.spec)) for raw in templates),
        schedules=tuple(map(_schedule, crons)),
    )


def _schedule(raw: _RawCron) -> InstalledSchedule:
    conditions = (raw.status.conditions if raw.status else None) or ()
    # Argo sets these two conditions: workflow/cron/operator.go
    wrong = next((entry for entry in conditions if entry.type in ("SubmissionError", "SpecError") and entry.status == "True"), None)
    return InstalledSchedule(
        name=_full_name(raw.metadata),
        cron=raw.spec.schedules,
        template=raw.spec.workflow_spec.workflow_template_ref.name,
        suspended=raw.spec.suspend,
        problem=wrong.message[:300] if wrong else "",
    )


def _full_name(meta: ObjectMeta) -> str:
    return f"{meta.namespace}/{meta.name}"
