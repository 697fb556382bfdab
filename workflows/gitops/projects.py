"""Build the AppProjects of Argo CD (never the project `default`), and its settings in argocd-cm: health checks, pod spec fields."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from workflows.catalog import PlannedRelease
from workflows.gitops.layout import IN_CLUSTER, delivered_releases, delivery
from workflows.spec import ClusterSpec
from workflows.spec.sections.argocd_delivery import ArgoCdDelivery

Object = dict[str, Any]

_EVERY_CHART = (
    "/Namespace",
    "apiextensions.k8s.io/CustomResourceDefinition",
    "rbac.authorization.k8s.io/ClusterRole",
    "rbac.authorization.k8s.io/ClusterRoleBinding",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
)
"""Cluster-wide kinds that operator charts usually create. A component's `cluster_kinds` in the catalog lists further ones."""

ENVIRONMENTS = "bringup-environments"
"""Name of the AppProject of the ApplicationSet, shared by all environments of a repository."""


def roots_project(argo: ArgoCdDelivery) -> str:
    """Return the name of the AppProject of Applications that create other Applications."""
    return f"{argo.project}-roots"


def projects(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> list[Object]:
    """Return two AppProjects: one for releases, one for the roots, which may create only Applications in Argo CD's namespace."""
    argo, chosen = delivery(spec), delivered_releases(releases)
    spaces = sorted({space for release in chosen for space in (release.namespace, *release.other_namespaces)})
    kinds = sorted({*_EVERY_CHART, *(kind for release in chosen for kind in release.cluster_kinds)})
    allowed: Object = {
        "description": f"Releases of {spec.name}",
        "sourceRepos": sorted({argo.repo, *(chart_source(release)[0] for release in chosen)}),
        "destinations": [{"server": IN_CLUSTER, "namespace": space} for space in spaces],
        "clusterResourceWhitelist": [_kind(kind) for kind in kinds],
    }
    over = _of_applications(f"Applications over the releases of {spec.name}", IN_CLUSTER, argo)
    return [_project(argo.project, argo, allowed), _project(roots_project(argo), argo, over)]


def environments_project(spec: ClusterSpec) -> Object:
    """Return the AppProject of a management Argo CD, which may create only Applications, in the cluster of each environment."""
    argo = delivery(spec)
    return _project(ENVIRONMENTS, argo, _of_applications("Roots of every environment", "*", argo))


def _of_applications(description: str, server: str, argo: ArgoCdDelivery) -> Object:
    """Return the spec of an AppProject that may create Applications in Argo CD's namespace and nothing else."""
    return {
        "description": description,
        "sourceRepos": [argo.repo],
        "destinations": [{"server": server, "namespace": argo.namespace}],
        "clusterResourceWhitelist": [],
        "namespaceResourceWhitelist": [_kind("argoproj.io/Application")],
    }


def chart_source(release: PlannedRelease) -> tuple[str, str]:
    """Return repository and chart name as Argo CD expects them: the address of an OCI chart loses its scheme and its last part."""
    if release.repo:
        return release.repo, release.chart
    repo, _, chart = release.chart.removeprefix("oci://").rpartition("/")
    return repo, chart


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


CONFIG_MAP = "argocd-cm"
HEALTH = "resource.customizations.health."
"""Prefix of the keys in argocd-cm that hold the health script of a kind; GROUP_KIND follows it."""
_ALWAYS = frozenset({"argoproj.io", "helm.cattle.io"})
"""API groups whose settings are always needed: those of Argo CD and of RKE2's helm-controller."""
_POD_SPECS = ("sunk.coreweave.com_NodeSet", "slinky.slurm.net_NodeSet")
"""Kinds whose `spec.template.spec` is a pod spec. Argo CD matches the kind exactly: `Nodeset` would silently match nothing."""
_ALIKE = {"nvidia.com_GPUCluster": "nvidia.com_ClusterPolicy", "kueue.x-k8s.io_LocalQueue": "kueue.x-k8s.io_ClusterQueue"}
"""Kind → another kind with the same conditions, whose health script is reused."""
_FIELDS = "- field: spec.template.spec\n  type: core/v1/PodSpec\n"


def settings(releases: Iterable[PlannedRelease]) -> dict[str, str]:
    """Return the keys and texts of argocd-cm for these releases: health scripts and pod spec fields of their kinds.

    The kinds are found by the API groups of the releases' CRDs.
    """
    groups = _ALWAYS | {crd.partition(".")[2] for release in releases for crd in release.crds}
    texts = {f"{HEALTH}{kind}": text for kind, text in health_scripts().items() if _group(kind) in groups}
    texts |= {f"resource.customizations.knownTypeFields.{kind}": _FIELDS for kind in _POD_SPECS if _group(kind) in groups}
    return dict(sorted(texts.items()))


def config_map(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> dict[str, Any]:
    """Return the ConfigMap argocd-cm as a merge patch with bringup's keys only, so that other keys stay."""
    meta = {"name": CONFIG_MAP, "namespace": delivery(spec).namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": settings(releases)}


def _group(kind: str) -> str:
    return kind.rpartition("_")[0]


@cache
def health_scripts() -> dict[str, str]:
    """Return GROUP_KIND → the Lua script by which Argo CD judges the health of such objects, without comments and indentation.

    tests/cluster/health has cases for every outcome of each script, which a real Argo CD evaluates.
    """
    folder = Path(__file__).with_name("health")
    read = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.glob("*.lua"))}
    scripts = {kind: "".join(f"{line.strip()}\n" for line in lines if not line.startswith("--")) for kind, lines in read.items()}
    return scripts | {kind: scripts[same] for kind, same in _ALIKE.items()}
