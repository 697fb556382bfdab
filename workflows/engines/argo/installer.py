"""Install the objects of a plan in the home cluster, and remove old plans from there.

Objects that a scheduled run installs are owned by its Workflow and deleted with it; a later scheduled run that needs the same
objects takes over their ownership. Objects that a person installed have no owner and stay until they are removed as old plans.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube.api import ApiError
from workflows.engines.argo import schedules
from workflows.engines.argo.home import Home, NamedObject, Object
from workflows.engines.argo.workflow_objects import CLUSTER, PIPELINE, PLAN, OwnerReference, ResourceMeta, TemplateRef
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.bundle import Bundle
from workflows.render.secret_volumes import public_name


class NotReady(ValueError):
    """Exception: the home cluster does not accept, or lacks, an object that the installation needs."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def install(
    home: Home,
    plan: Plan,
    bundle: Bundle,
    secrets: Mapping[str, bytes],
    *,
    settled: bool = False,
    owner: OwnerReference | None = None,
) -> None:
    """Apply all objects of a plan in the home cluster, each after the objects that it needs; schedules come last.

    With `settled`, service accounts must exist already, and neither roles nor schedules are written. `owner` becomes the owner of
    the other objects. Raises NotReady, Refused, Conflict.
    """
    for manifest in bundle.rbac:
        if settled:
            _require(home, manifest, bundle.template["metadata"]["labels"][PIPELINE])
        else:
            _apply(home, manifest)
    for manifest in bundle.config_maps:
        _keep(home, _owned(home, manifest, owner))
    for manifest in _files(home, plan, secrets):
        _apply(home, _owned(home, manifest, owner))
    _apply(home, _owned(home, bundle.template, owner))
    if bundle.starts is not None and not settled:
        for manifest in bundle.starts:
            _apply(home, manifest)
        schedules.delete_dropped(home, plan.name, bundle)


def _require(home: Home, manifest: Object, pipeline: str) -> None:
    """Raise NotReady if the manifest is a ServiceAccount that the home cluster lacks. `pipeline` is for the hint.

    Roles are not checked, since their lack shows as soon as a pod needs them; token Secrets may not be read.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    if kind != "ServiceAccount":
        return
    if home.ask(lambda kube: kube.get(home.core("serviceaccounts", name), NamedObject)) is None:
        raise NotReady(
            f"namespace {home.namespace} of the home cluster has no ServiceAccount {name}, and this account may not create it",
            hint=f"let an account that may create it install the schedule again: bringup {pipeline} build SPEC --engine argo",
        )


def _files(home: Home, plan: Plan, contents: Mapping[str, bytes]) -> Iterator[Object]:
    """Yield a ConfigMap with the public files among `contents` (see `Plan.public`), and a Secret with the other files."""
    packed = {name: base64.b64encode(content).decode() for name, content in contents.items()}
    meta = {"namespace": home.namespace, "labels": {"bringup/cluster": plan.name}}
    if public := {name: data for name, data in packed.items() if name in plan.public}:
        named = {"name": public_name(plan), **meta}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "binaryData": public}
    if private := {name: data for name, data in packed.items() if name not in plan.public}:
        named = {"name": f"bringup-secrets-{names.short(plan.inputs)}", **meta}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": named, "type": "Opaque", "data": private}


def _owned(home: Home, manifest: Object, owner: OwnerReference | None) -> Object:
    """Return the manifest with `owner`, or unchanged if the object exists without owner because a person installed it."""
    if owner is None:
        return manifest
    existing = home.ask(lambda kube: kube.get(kube.path(manifest), NamedObject))
    if existing is not None and not existing.metadata.owner_references:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [msgspec.to_builtins(owner)]}}


def _apply(home: Home, manifest: Object) -> None:
    try:
        home.ask(lambda kube: kube.apply(manifest))
    except ApiError as error:
        what = f"{manifest['kind']} {manifest['metadata']['name']}"
        raise NotReady(f"the home cluster refused {what} in namespace {home.namespace}: {error}") from error


def _keep(home: Home, manifest: Object) -> None:
    """Write an immutable ConfigMap, unless it exists with equal content and owner.

    Raises NotReady if a ConfigMap of that name has other content, since the name is a digest of the content.
    """
    name = manifest["metadata"]["name"]
    existing = home.ask(lambda kube: kube.get(home.core("configmaps", name), dict[str, Any]))
    if existing is not None and any(existing.get(part) != manifest.get(part) for part in ("data", "binaryData")):
        raise NotReady(
            f"ConfigMap {name} of the home cluster differs from this plan, although its name is a digest of its content",
            hint="delete it, then try again",
        )
    if existing is None or existing["metadata"].get("ownerReferences") != manifest["metadata"].get("ownerReferences"):
        _apply(home, manifest)


OF_A_PLAN = (
    ("secrets", "bringup-secrets-"),
    ("configmaps", "bringup-public-"),
    ("configmaps", "bringup-tasks-"),
    ("configmaps", "bringup-fleet-"),
)
"""Resource and name prefix of the objects installed beside the template; their names end with the digest in the template's name."""
STARTERS = ("workflows", "cronworkflows", "workfloweventbindings")
YOUNG = timedelta(days=1)
"""Age below which a template is never removed, since somebody may be about to submit a run of it."""


class _Refers(Struct, frozen=True, rename="camel"):
    workflow_template_ref: TemplateRef = TemplateRef()


class _StarterSpec(Struct, frozen=True, rename="camel"):
    """The fields in which a Workflow, a CronWorkflow or a WorkflowEventBinding may name its template."""

    workflow_template_ref: TemplateRef = TemplateRef()
    workflow_spec: _Refers = _Refers()
    submit: _Refers = _Refers()


class _Starter(Struct, frozen=True):
    spec: _StarterSpec = _StarterSpec()


def remove(home: Home, now: datetime) -> list[str]:
    """Delete old plans that nothing refers to, and return the names of their templates.

    A plan is kept while a Workflow (an ended one can still be resumed), a CronWorkflow or a WorkflowEventBinding names its
    template, while it is younger than a day, and while it is the newest of its cluster and pipeline. The template goes last, so
    that an interrupted removal is completed by the next one. Raises Refused if this account may not delete.
    """
    templates = [meta for meta in home.templates() if PLAN in meta.annotations]
    # they are ordered by age, so the last one of a cluster and pipeline is its newest
    newest = {(meta.labels.get(CLUSTER), meta.labels.get(PIPELINE)): meta.name for meta in templates}
    kept_names = {name for kind in STARTERS for name in _named(home, home.argo(kind))} | set(newest.values())
    aged = (meta for meta in templates if now - datetime.fromisoformat(meta.creation_timestamp) > YOUNG)
    old = [meta for meta in aged if meta.name not in kept_names]
    living = {_digest(meta) for meta in templates} - {_digest(meta) for meta in old}
    for meta in old:
        for kind, prefix in OF_A_PLAN if _digest(meta) not in living else ():
            home.delete(home.core(kind, prefix + _digest(meta)))
        home.delete(home.argo("workflowtemplates", meta.name))
    return [meta.name for meta in old]


def _named(home: Home, path: str) -> set[str]:
    starters = home.ask(lambda kube: kube.list(path, _Starter)) or ()
    refs = [ref for starter in starters for ref in (starter.spec, starter.spec.workflow_spec, starter.spec.submit)]
    return {ref.workflow_template_ref.name for ref in refs}


def _digest(meta: ResourceMeta) -> str:
    """Return the digest at the end of a template's name, with which the names of the plan's other objects end too."""
    return meta.name.rpartition("-")[2]
