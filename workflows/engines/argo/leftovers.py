"""Removal of old plans from the home cluster: their WorkflowTemplate, ConfigMaps and Secret."""

from datetime import datetime, timedelta

from msgspec import Struct

from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import API, CLUSTER, PIPELINE, PLAN, ResourceMeta, TemplateRef

OF_A_PLAN = (
    ("secrets", "bringup-secrets-"),
    ("configmaps", "bringup-public-"),
    ("configmaps", "bringup-tasks-"),
    ("configmaps", "bringup-fleet-"),
)
"""Kind and name prefix of what an installation creates beside the template; all names end with the same digest."""
STARTERS = ("workflows", "cronworkflows", "workfloweventbindings")
YOUNG = timedelta(days=1)
"""Age below which a template is kept, since somebody may be about to submit a run of it."""


class _Refers(Struct, frozen=True, rename="camel"):
    workflow_template_ref: TemplateRef = TemplateRef()


class _Spec(Struct, frozen=True, rename="camel"):
    """The places where a Workflow, a CronWorkflow or a WorkflowEventBinding names its template."""

    workflow_template_ref: TemplateRef = TemplateRef()
    workflow_spec: _Refers = _Refers()
    submit: _Refers = _Refers()


class _Starter(Struct, frozen=True):
    spec: _Spec = _Spec()


def remove(home: Home, now: datetime) -> list[str]:
    """Delete old plans that nothing refers to and return their templates' names. Raises Refused if this account may not delete.

    A plan is kept while a Workflow (an ended one can still be resumed), a CronWorkflow or a WorkflowEventBinding names its
    template, while it is younger than a day, and while it is the newest of its cluster and pipeline. The template goes last, so
    that an interrupted removal is completed by the next one.
    """
    path = f"/apis/{API}/namespaces/{home.namespace}"
    templates = [meta for meta in home.templates() if PLAN in meta.annotations]
    kept_names = {name for kind in STARTERS for name in _named(home, f"{path}/{kind}")} | _newest(templates)
    old = [meta for meta in templates if meta.name not in kept_names and now - _made(meta) > YOUNG]
    living = {_digest(meta) for meta in templates} - {_digest(meta) for meta in old}
    for meta in old:
        for kind, prefix in OF_A_PLAN if _digest(meta) not in living else ():
            _delete(home, home.core(kind, prefix + _digest(meta)))
        _delete(home, f"{path}/workflowtemplates/{meta.name}")
    return [meta.name for meta in old]


def _named(home: Home, path: str) -> set[str]:
    starters = home.ask(lambda kube: kube.list(path, _Starter)) or ()
    refs = [ref for starter in starters for ref in (starter.spec, starter.spec.workflow_spec, starter.spec.submit)]
    return {ref.workflow_template_ref.name for ref in refs}


def _newest(templates: list[ResourceMeta]) -> set[str]:
    """Return the newest template of each cluster and pipeline; `found` is ordered by age."""
    return set({(meta.labels.get(CLUSTER), meta.labels.get(PIPELINE)): meta.name for meta in templates}.values())


def _made(meta: ResourceMeta) -> datetime:
    return datetime.fromisoformat(meta.creation_timestamp)


def _digest(meta: ResourceMeta) -> str:
    """Return the digest at the end of the template's name, which is part of all names of the installation."""
    return meta.name.rpartition("-")[2]


def _delete(home: Home, path: str) -> None:
    home.ask(lambda kube: kube.delete(path))
