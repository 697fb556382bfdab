"""The Kubernetes kinds that the simulator uses, with their API paths. Custom kinds come from `crds.yaml`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import Struct

Obj = dict[str, Any]
"""A Kubernetes object as plain JSON data."""


class Ref(NamedTuple):
    """The namespace and name that identify an object among those of its kind; the namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str


def ref(obj: Obj) -> Ref:
    """Return namespace and name of an object, as a Ref."""
    meta = obj["metadata"]
    return Ref(meta.get("namespace", ""), meta["name"])


def labels_of(obj: Obj) -> dict[str, str]:
    """Return the labels of an object; an empty dict if it has none."""
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    """Return the annotations of an object; an empty dict if it has none."""
    return obj["metadata"].get("annotations") or {}


def owner_uid(obj: Obj) -> str:
    """Return the UID of the object that controls an object, such as a pod; empty if there is none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((entry["uid"] for entry in owners if entry.get("controller")), "")


def has_condition(obj: Obj, kind: str, status: str = "True") -> bool:
    """Return True if the object's status has a condition of type `kind` with this status (`True`, `False` or `Unknown`)."""
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(entry["type"] == kind and entry["status"] == status for entry in conditions)


class ObjectKind(Struct, frozen=True):
    """A Kubernetes kind in one API version, with what its API paths need."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The field `apiVersion` of its objects: `apps/v1`, or `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The plural name with the API group, `jobs.batch`; `pods.` in the core group."""
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """Return the API path of a collection (without `name`), of one object, or of its sub-resource `sub`."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return base + scope + f"/{self.plural}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def owner(self, obj: Obj, *, controller: bool = True) -> Obj:
        """Return an entry for `ownerReferences` that names `obj`, an object of this kind, as the owner."""
        meta = obj["metadata"]
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": controller,
            "blockOwnerDeletion": True,
        }


class _KindEntry(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    plural: str
    versions: tuple[str, ...]
    cluster: bool = False
    short: tuple[str, ...] = ()
    status: bool = True
    scale: bool = False


class _KindGroup(Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    kinds: tuple[_KindEntry, ...]


@functools.cache
def _groups() -> dict[str, dict[str, _KindEntry]]:
    text = Path(__file__).with_name("crds.yaml").read_bytes()
    groups = msgspec.convert(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), tuple[_KindGroup, ...])
    return {group.group: {entry.kind: entry for entry in group.kinds} for group in groups}


def custom(group: str, kind: str) -> ObjectKind:
    """Return a custom kind in the version in which it is stored. Raises KeyError if `crds.yaml` lacks it."""
    entry = _groups()[group][kind]
    return ObjectKind(group, entry.versions[-1], entry.plural, entry.kind, not entry.cluster)


def definitions(group: str, *only: str) -> tuple[Obj, ...]:
    """Return the CustomResourceDefinition objects of an API group in `crds.yaml`: of all its kinds, or of those in `only`."""
    chosen = (entry for entry in _groups()[group].values() if not only or entry.kind in only)
    return tuple(_definition(group, entry) for entry in chosen)


def _definition(group: str, entry: _KindEntry) -> Obj:
    names = {"kind": entry.kind, "listKind": f"{entry.kind}List", "plural": entry.plural, "singular": entry.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{entry.plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster" if entry.cluster else "Namespaced",
            "names": names | ({"shortNames": list(entry.short)} if entry.short else {}),
            "versions": [_version(entry, name) for name in entry.versions],
        },
    }


def _version(entry: _KindEntry, name: str) -> Obj:
    sub: Obj = {"status": {}} if entry.status else {}
    if entry.scale:
        sub["scale"] = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"name": name, "served": True, "storage": name == entry.versions[-1], "schema": schema, "subresources": sub}


NAMESPACES = ObjectKind("", "v1", "namespaces", "Namespace", False)
NODES = ObjectKind("", "v1", "nodes", "Node", False)
PODS = ObjectKind("", "v1", "pods", "Pod")
SERVICES = ObjectKind("", "v1", "services", "Service")
SECRETS = ObjectKind("", "v1", "secrets", "Secret")
CONFIG_MAPS = ObjectKind("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = ObjectKind("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = ObjectKind("", "v1", "events", "Event")
CLAIMS = ObjectKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = ObjectKind("", "v1", "persistentvolumes", "PersistentVolume", False)
STORAGE_CLASSES = ObjectKind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
RUNTIME_CLASSES = ObjectKind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
DAEMON_SETS = ObjectKind("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS = ObjectKind("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = ObjectKind("apps", "v1", "statefulsets", "StatefulSet")
JOBS = ObjectKind("batch", "v1", "jobs", "Job")
LEASES = ObjectKind("coordination.k8s.io", "v1", "leases", "Lease")
CRDS = ObjectKind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
RESOURCE_SLICES = ObjectKind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
CLAIM_TEMPLATES = ObjectKind("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEVICE_CLASSES = ObjectKind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False)
HELM_CHARTS = custom("helm.cattle.io", "HelmChart")
HELM_CHART_CONFIGS = custom("helm.cattle.io", "HelmChartConfig")
APPLICATIONS = custom("argoproj.io", "Application")
APP_PROJECTS = custom("argoproj.io", "AppProject")
