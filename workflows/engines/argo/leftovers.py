"""Takes out of home what old plans left there: template, ConfigMaps, and the Secret with the keys that their pods mounted."""

from datetime import datetime, timedelta

from msgspec import Struct

from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import API, CLUSTER, PIPELINE, PLAN, Meta, TemplateRef

OF_A_PLAN = (
    ("secrets", "bringup-secrets-"),
    ("configmaps", "bringup-public-"),
    ("configmaps", "bringup-tasks-"),
    ("configmaps", "bringup-fleet-"),
)
"""What an installation makes beside the template, by kind and by how its name begins; it ends as the template's does."""
STARTERS = ("workflows", "cronworkflows", "workfloweventbindings")
YOUNG = timedelta(days=1)
"""A template that is not older may be somebody's who is about to submit a run of it."""


class _Refers(Struct, frozen=True, rename="camel"):
    workflow_template_ref: TemplateRef = TemplateRef()


class _Spec(Struct, frozen=True, rename="camel"):
    """Of a Workflow, a CronWorkflow or a WorkflowEventBinding: where each names its template."""

    workflow_template_ref: TemplateRef = TemplateRef()
    workflow_spec: _Refers = _Refers()
    submit: _Refers = _Refers()


class _Starter(Struct, frozen=True):
    spec: _Spec = _Spec()


def remove(home: Home, now: datetime) -> list[str]:
    """Delete old plans that nothing refers to; their templates' names. Raises Refused where that may not be done.

    A plan stays while a Workflow (also one that has ended: it can be resumed), a CronWorkflow or a WorkflowEventBinding names its
    template, while that is young, and while it is the newest of its cluster and pipeline. A template goes last: what was not
    finished is found again.
    """
    path = f"/apis/{API}/namespaces/{home.namespace}"
    found = [meta for meta in home.templates() if PLAN in meta.annotations]
    kept = {name for kind in STARTERS for name in _named(home, f"{path}/{kind}")} | _newest(found)
    old = [meta for meta in found if meta.name not in kept and now - _made(meta) > YOUNG]
    living = {_digest(meta) for meta in found} - {_digest(meta) for meta in old}
    for meta in old:
        for kind, prefix in OF_A_PLAN if _digest(meta) not in living else ():
            _delete(home, home.core(kind, prefix + _digest(meta)))
        _delete(home, f"{path}/workflowtemplates/{meta.name}")
    return [meta.name for meta in old]


def _named(home: Home, path: str) -> set[str]:
    found = home.ask(lambda kube: kube.list(path, _Starter)) or ()
    refs = [ref for one in found for ref in (one.spec, one.spec.workflow_spec, one.spec.submit)]
    return {ref.workflow_template_ref.name for ref in refs}


def _newest(found: list[Meta]) -> set[str]:
    """`found` in the order in which they were made: of each cluster and pipeline the template that was made last."""
    return set({(meta.labels.get(CLUSTER), meta.labels.get(PIPELINE)): meta.name for meta in found}.values())


def _made(meta: Meta) -> datetime:
    return datetime.fromisoformat(meta.creation_timestamp)


def _digest(meta: Meta) -> str:
    """As in the names of all that was installed with it."""
    return meta.name.rpartition("-")[2]


def _delete(home: Home, path: str) -> None:
    home.ask(lambda kube: kube.delete(path))
