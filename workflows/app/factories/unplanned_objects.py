"""Objects of a live factory that its spec does not bring, or brings otherwise: a rebuild makes none of them again.

All kinds that the API serves are listed, so that an object of any kind that somebody made by hand is seen. Those in projects and in
`default` are compared one by one; a namespace that is no part of a factory counts as a whole. Of those without a namespace
`cluster_origins` tells which are made again by themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from steps.clients.kube.client import Kube
from steps.contract import plain_text
from steps.contract.task import Verb
from steps.errors import StepError
from workflows.app.factories import cluster_origins
from workflows.plan.model import Plan
from workflows.spec import FactorySpec
from workflows.spec.pipelines.factory_spec import RESERVED, SYSTEM_SPACES
from workflows.stages import factory_pipelines

Object = dict[str, Any]
DERIVED = frozenset({"controllerrevisions", "endpoints", "endpointslices", "events", "leases", "podmetrics", "replicasets"})
"""Resources that controllers keep."""
WORK = frozenset(
    {"jobs", "pods", "workflowartifactgctasks", "workflows", "workflowtaskresults", "workflowtasksets"},
)
"""Resources of work that ends, which a rebuild ends or waits for; Workflows and pods are saved as diagnostics."""
_DEFAULTS = frozenset({("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default"), ("services", "kubernetes")})
"""Objects that Kubernetes makes in each namespace, or in `default`."""
_COMPARED: Mapping[str, tuple[str, ...]] = {
    "workflowtemplates": ("spec",),
    "cronworkflows": ("spec",),
    "configmaps": ("data", "binaryData"),
    "roles": ("rules",),
    "rolebindings": ("roleRef", "subjects"),
    "clusterroles": ("rules",),
    "clusterrolebindings": ("roleRef", "subjects"),
    "clusterworkflowtemplates": ("spec",),
    "priorityclasses": ("value", "description"),
    "storageclasses": ("provisioner", "parameters"),
}
"""Resource → fields that the API server keeps as they were written. Others are compared by name: it adds defaults to them."""
_RELEASE, _RELEASE_SPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_ACCOUNT = "kubernetes.io/service-account.name"
_MESSAGE = 200
NODE_MARKS = "labels and taints of nodes: those that somebody added by hand are lost"
"""Sentence about what nobody compares: kubelets, drivers and network plugins set labels of nodes too, and no list has them all."""


class _ServedResource(Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class _ResourceList(Struct, frozen=True):
    resources: tuple[_ServedResource, ...] = ()


class _GroupVersion(Struct, frozen=True, rename="camel"):
    group_version: str


class _ApiGroup(Struct, frozen=True, rename="camel"):
    preferred_version: _GroupVersion


class _ApiGroups(Struct, frozen=True):
    groups: tuple[_ApiGroup, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UnplannedObject:
    """An object that a rebuild does not bring back as it is: its resource, place and content, empty for a Secret.

    `is_changed`: the spec brings it otherwise.
    """

    resource: str
    namespace: str
    name: str
    content: Object
    is_changed: bool = False

    @property
    def key(self) -> str:
        """Return the name by which `rebuild.restored` of a spec means it."""
        return f"{self.resource}/{self.namespace}/{self.name}" if self.namespace else f"{self.resource}/{self.name}"

    @property
    def sentence(self) -> str:
        """Return what is lost of it, as one line."""
        name = plain_text.line(f"{self.namespace}/{self.name}" if self.namespace else self.name)
        saved = "it is saved" if self.content else "it is not saved"
        if self.is_changed:
            return f"changed in the cluster: {self.resource} {name}; it is saved, and built again as the spec has it"
        return f"only in the cluster: {self.resource} {name}; {saved}, and not built again"


@dataclass(frozen=True, kw_only=True)
class ObjectComparison:
    """Result of a comparison: the objects that the spec does not bring, and sentences about what could not be listed."""

    objects: tuple[UnplannedObject, ...] = ()
    uncompared: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Reference:
    """Parts of a factory by which a live object is judged: projects, planned objects by key, releases, and all its claims."""

    spaces: frozenset[str]
    planned: Mapping[tuple[str, str, str], Object]
    releases: frozenset[tuple[str, str]]
    charts: frozenset[tuple[str, str]]
    claims: frozenset[tuple[str, str]]


def compare(spec: FactorySpec, plan: Plan, kube: Kube) -> ObjectComparison:
    """Compare all objects of a live factory with its plan. Raises StepError if the API server does not answer."""
    claims = kube.list("/api/v1/persistentvolumeclaims", Object) or ()
    planned = {_key(item): item for item in planned_objects(plan)}
    reference = _Reference(
        spaces=frozenset({*spec.projects, "default"}),
        planned=planned,
        releases=frozenset((release.namespace, release.release_name) for release in plan.releases),
        charts=frozenset((namespace, name) for kind, namespace, name in planned if kind == "HelmChart"),
        claims=frozenset(_key(claim)[1:] for claim in claims),
    )
    objects, uncompared = list(_namespaces(spec, kube)), [NODE_MARKS]
    for path in _versions(kube):
        try:
            for resource in _resources(kube, path):
                listed = kube.list(f"{path}/{resource.name}", Object) or ()
                objects += [entry for item in listed if (entry := _unplanned(_group(path), resource, item, reference))]
        except StepError as error:
            # the API of a group may be served by a program of its own, which is down
            uncompared.append(f"objects of {path.removeprefix('/apis/')}: {plain_text.line(str(error))[:_MESSAGE]}")
    return ObjectComparison(objects=tuple(objects), uncompared=tuple(uncompared))


def planned_objects(plan: Plan) -> Iterator[Object]:
    """Yield the objects that the tasks of a factory's plan apply, with those of its pipelines."""
    for stage in plan.stages:
        for step in stage.steps:
            yield from step.task.arguments.get("objects", ()) if step.task.verb is Verb.APPLY else ()
    if data := plan.archives.get(factory_pipelines.FILE):
        yield from msgspec.json.decode(data)


def _key(item: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = item.get("metadata") or {}
    return str(item.get("kind", "")), str(meta.get("namespace", "")), str(meta.get("name", ""))


def _namespaces(spec: FactorySpec, kube: Kube) -> Iterator[UnplannedObject]:
    known = {*spec.projects, *RESERVED}
    for item in kube.list("/api/v1/namespaces", Object) or ():
        name = str(item["metadata"]["name"])
        if name not in known and not SYSTEM_SPACES.fullmatch(name):
            yield UnplannedObject(resource="namespaces", namespace="", name=name, content=item)


def _versions(kube: Kube) -> Iterator[str]:
    """Yield the path of each API version: the core, and the preferred one of each group."""
    yield "/api/v1"
    groups = kube.get("/apis", _ApiGroups) or _ApiGroups()
    for group in groups.groups:
        yield f"/apis/{group.preferred_version.group_version}"


def _resources(kube: Kube, path: str) -> Iterator[_ServedResource]:
    """Yield the resources of an API version whose objects are compared; those that controllers keep need not be listed."""
    served = kube.get(path, _ResourceList) or _ResourceList()
    for resource in served.resources:
        if "list" in resource.verbs and "/" not in resource.name and not _is_kept(_group(path), resource):
            yield resource


def _is_kept(group: str, resource: _ServedResource) -> bool:
    if resource.namespaced:
        return resource.name in DERIVED | WORK
    return (group, resource.name) in cluster_origins.KEPT_BY_CONTROLLERS | {("", "namespaces")}


def _group(path: str) -> str:
    """Return the API group of an API version's path; empty for the core."""
    return path.removeprefix("/apis/").partition("/")[0] if path.startswith("/apis/") else ""


def _unplanned(group: str, resource: _ServedResource, item: Object, reference: _Reference) -> UnplannedObject | None:
    """Return an object if a rebuild does not bring it back as it is; None for all others, and for those of other namespaces."""
    kind, space, name = resource.kind, *_key(item)[1:]
    if resource.namespaced and space not in reference.spaces:
        return None
    wanted = reference.planned.get((kind, space, name))
    if wanted is not None and not _is_changed(resource.name, item, wanted):
        return None
    if wanted is None and _is_made_again(group, resource, item, reference):
        return None
    content = {} if resource.name == "secrets" else item
    return UnplannedObject(resource=resource.name, namespace=space, name=name, content=content, is_changed=wanted is not None)


def _is_made_again(group: str, resource: _ServedResource, item: Object, reference: _Reference) -> bool:
    """Return True for an object that no plan has, and that Kubernetes, a chart or another object brings back."""
    if not resource.namespaced:
        judged = cluster_origins.ClusterObject(
            group=group,
            resource=resource.name,
            content=item,
            releases=reference.releases,
            charts=reference.charts,
            claims=reference.claims,
        )
        return bool(cluster_origins.origin(judged))
    meta = item.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if (
        (resource.name, meta.get("name")) in _DEFAULTS
        or meta.get("ownerReferences")
        or (annotations.get(_RELEASE_SPACE), annotations.get(_RELEASE)) in reference.releases
    ):
        return True
    return item.get("type") == "kubernetes.io/service-account-token" and annotations.get(_ACCOUNT) == "default"


def _is_changed(resource: str, item: Object, wanted: Object) -> bool:
    return any(_plain(resource, item.get(field)) != _plain(resource, wanted.get(field)) for field in _COMPARED.get(resource, ()))


def _plain(resource: str, value: Any) -> Any:
    """Return a field for a comparison. A suspension is a person's, or that of a drain; the spec may have it or not."""
    if resource == "cronworkflows" and isinstance(value, dict):
        return {name: item for name, item in value.items() if name != "suspend"}
    return value or None
