"""AppProjects: the sources, namespaces and kinds that Applications of this environment may use; never the project `default`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workflows.catalog import PlannedRelease
from workflows.gitops.layout import IN_CLUSTER, delivered, delivery
from workflows.spec import ClusterSpec
from workflows.spec.argocd_delivery import ArgoCdDelivery

Object = dict[str, Any]

_EVERY_CHART = (
    "/Namespace",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "rbac.authorization.k8s.io/ClusterRole",
    "rbac.authorization.k8s.io/ClusterRoleBinding",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
)
"""Cluster-wide kinds that charts of operators usually create. Each component of the catalog lists its further kinds."""

ENVIRONMENTS = "bringup-environments"
"""Project of the ApplicationSet, shared by all environments of a repository."""


def roots_project(argo: ArgoCdDelivery) -> str:
    """Return the name of the project of Applications over Applications."""
    return f"{argo.project}-roots"


def projects(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> list[Object]:
    """Return two projects: that of the releases, and that of the roots, which may create Applications next to Argo CD only."""
    argo, chosen = delivery(spec), delivered(releases)
    spaces = sorted({space for release in chosen for space in (release.namespace, *release.other_namespaces)})
    kinds = sorted({*_EVERY_CHART, *(kind for release in chosen for kind in release.cluster_kinds)})
    allowed: Object = {
        "description": f"Releases of {spec.name}",
        "sourceRepos": sorted({argo.repo, *map(_repository, chosen)}),
        "destinations": [{"server": IN_CLUSTER, "namespace": space} for space in spaces],
        "clusterResourceWhitelist": [_kind(kind) for kind in kinds],
    }
    over: Object = {
        "description": f"Applications over the releases of {spec.name}",
        "sourceRepos": [argo.repo],
        "destinations": [{"server": IN_CLUSTER, "namespace": argo.namespace}],
        "clusterResourceWhitelist": [],
        "namespaceResourceWhitelist": [_kind("argoproj.io/Application")],
    }
    return [_project(argo.project, argo, allowed), _project(roots_project(argo), argo, over)]


def environments_project(spec: ClusterSpec) -> Object:
    """Return the project of a management Argo CD, which may create Applications in the cluster of each environment."""
    argo = delivery(spec)
    body: Object = {
        "description": "Roots of every environment",
        "sourceRepos": [argo.repo],
        "destinations": [{"server": "*", "namespace": argo.namespace}],
        "clusterResourceWhitelist": [],
        "namespaceResourceWhitelist": [_kind("argoproj.io/Application")],
    }
    return _project(ENVIRONMENTS, argo, body)


def _repository(release: PlannedRelease) -> str:
    return release.repo or release.chart.removeprefix("oci://").rpartition("/")[0]


def _kind(text: str) -> Object:
    group, _, kind = text.partition("/")
    return {"group": group, "kind": kind}


def _project(name: str, argo: ArgoCdDelivery, body: Object) -> Object:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "AppProject",
        "metadata": {"name": name, "namespace": argo.namespace},
        "spec": body,
    }
