"""Kinds of objects and their API paths: the built-in ones by name, custom ones looked up in `crds.yaml`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml
from msgspec import Struct

Obj = dict[str, Any]
"""One Kubernetes object as plain JSON data."""


class Ref(NamedTuple):
    """Where an object is within its kind; `namespace` is empty for cluster-scoped ones."""

    namespace: str
    name: str


def ref(obj: Obj) -> Ref:
    """The place of an object."""
    meta = obj["metadata"]
    return Ref(meta.get("namespace", ""), meta["name"])


class Kind(Struct, frozen=True):
    """One kind as the API serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", sub: str = "") -> str:
        """API path of the collection (no `name`), of one object, or of its sub-resource."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return base + scope + f"/{self.plural}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")

    def owner(self, obj: Obj, *, controller: bool = True) -> Obj:
        """An ownerReference to `obj`, an object of this kind."""
        meta = obj["metadata"]
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": controller,
            "blockOwnerDeletion": True,
        }


class _Definition(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    plural: str
    versions: tuple[str, ...]
    cluster: bool = False
    short: tuple[str, ...] = ()
    status: bool = True
    scale: bool = False


class _Group(Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    kinds: tuple[_Definition, ...]


@functools.cache
def _groups() -> dict[str, dict[str, _Definition]]:
    text = Path(__file__).with_name("crds.yaml").read_bytes()
    groups = msgspec.convert(yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)), tuple[_Group, ...])
    return {group.group: {entry.kind: entry for entry in group.kinds} for group in groups}


def custom(group: str, kind: str) -> Kind:
    """A custom kind of `crds.yaml` in its stored version. KeyError when the table lacks it."""
    entry = _groups()[group][kind]
    return Kind(group, entry.versions[-1], entry.plural, entry.kind, not entry.cluster)


def definitions(group: str, *only: str) -> tuple[Obj, ...]:
    """CustomResourceDefinition objects of a group: all its kinds, or those named."""
    chosen = (entry for entry in _groups()[group].values() if not only or entry.kind in only)
    return tuple(_definition(group, entry) for entry in chosen)


def _definition(group: str, entry: _Definition) -> Obj:
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


def _version(entry: _Definition, name: str) -> Obj:
    sub: Obj = {"status": {}} if entry.status else {}
    if entry.scale:
        sub["scale"] = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"name": name, "served": True, "storage": name == entry.versions[-1], "schema": schema, "subresources": sub}


NAMESPACES = Kind("", "v1", "namespaces", "Namespace", False)
NODES = Kind("", "v1", "nodes", "Node", False)
PODS = Kind("", "v1", "pods", "Pod")
SERVICES = Kind("", "v1", "services", "Service")
SECRETS = Kind("", "v1", "secrets", "Secret")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = Kind("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS = Kind("", "v1", "events", "Event")
CLAIMS = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Kind("", "v1", "persistentvolumes", "PersistentVolume", False)
STORAGE_CLASSES = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet")
JOBS = Kind("batch", "v1", "jobs", "Job")
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease")
CRDS = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False)
RESOURCE_SLICES = Kind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)
DEVICE_CLASSES = Kind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False)
HELM_CHARTS = custom("helm.cattle.io", "HelmChart")
HELM_CHART_CONFIGS = custom("helm.cattle.io", "HelmChartConfig")
APPLICATIONS = custom("argoproj.io", "Application")
APP_PROJECTS = custom("argoproj.io", "AppProject")
