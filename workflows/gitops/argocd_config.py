"""Keys of the ConfigMap argocd-cm that a delivery needs: health checks of custom kinds, and fields that are pod specs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from workflows.catalog import PlannedRelease
from workflows.gitops.layout import delivery
from workflows.spec import ClusterSpec

CONFIG_MAP = "argocd-cm"
HEALTH = "resource.customizations.health."
"""Prefix of the keys that hold the health check of a kind, followed by GROUP_KIND."""
_ALWAYS = frozenset({"argoproj.io", "helm.cattle.io"})
"""API groups of every delivery: those of Argo CD and of RKE2's helm-controller."""
_POD_SPECS = ("sunk.coreweave.com_NodeSet", "slinky.slurm.net_NodeSet")
"""Kinds whose `spec.template.spec` is a pod spec. Argo CD matches the kind exactly: `Nodeset` would silently match nothing."""
_ALIKE = {
    "nvidia.com_GPUCluster": "nvidia.com_ClusterPolicy",
    "kueue.x-k8s.io_LocalQueue": "kueue.x-k8s.io_ClusterQueue",
}
"""Kind → another kind with the same conditions, whose health script is reused."""
_FIELDS = "- field: spec.template.spec\n  type: core/v1/PodSpec\n"


def settings(releases: Iterable[PlannedRelease]) -> dict[str, str]:
    """Return key and text of argocd-cm for the kinds that these releases bring, found by the API groups of their CRDs."""
    groups = _ALWAYS | {crd.partition(".")[2] for release in releases for crd in release.crds}
    found = {f"{HEALTH}{kind}": text for kind, text in health_scripts().items() if _group(kind) in groups}
    found |= {f"resource.customizations.knownTypeFields.{kind}": _FIELDS for kind in _POD_SPECS if _group(kind) in groups}
    return dict(sorted(found.items()))


def config_map(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> dict[str, Any]:
    """Return the merge patch of argocd-cm, which has bringup's keys only."""
    meta = {"name": CONFIG_MAP, "namespace": delivery(spec).namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": settings(releases)}


def _group(kind: str) -> str:
    return kind.rpartition("_")[0]


@cache
def health_scripts() -> dict[str, str]:
    """Return the Lua health script of every kind, by GROUP_KIND, without comments and indentation.

    tests/cluster/health has cases for every outcome of each script, which a real Argo CD evaluates.
    """
    folder = Path(__file__).with_name("health")
    read = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.glob("*.lua"))}
    found = {kind: "".join(f"{line.strip()}\n" for line in lines if not line.startswith("--")) for kind, lines in read.items()}
    return found | {kind: found[same] for kind, same in _ALIKE.items()}
