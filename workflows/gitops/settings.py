"""Keys of argocd-cm that a delivery needs: health of kinds that Argo CD does not know, and which fields are pod specs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from workflows.catalog import Release
from workflows.gitops.layout import delivery
from workflows.spec import ClusterSpec

CONFIG_MAP = "argocd-cm"
HEALTH = "resource.customizations.health."
"""How the keys begin that hold the health of a kind, `GROUP_KIND`."""
_ALWAYS = frozenset({"argoproj.io", "helm.cattle.io"})
"""API groups that every delivery has: Argo CD's own, and RKE2's helm-controller."""
_POD_SPECS = ("sunk.coreweave.com_NodeSet", "slinky.slurm.net_NodeSet")
"""Kinds whose `spec.template.spec` is a pod spec. The kind is exact: `Nodeset` matches nothing, in silence (gpu_stack §6.4)."""
_ALIKE = {
    "nvidia.com_GPUCluster": "nvidia.com_ClusterPolicy",
    "kueue.x-k8s.io_LocalQueue": "kueue.x-k8s.io_ClusterQueue",
}
"""Kind → the kind whose conditions it shares, and so its script."""
_FIELDS = "- field: spec.template.spec\n  type: core/v1/PodSpec\n"


def settings(releases: Iterable[Release]) -> dict[str, str]:
    """Key of argocd-cm → text, for the kinds that these releases bring (the group of one of their CRDs)."""
    groups = _ALWAYS | {crd.partition(".")[2] for release in releases for crd in release.crds}
    found = {f"{HEALTH}{kind}": text for kind, text in health_scripts().items() if _group(kind) in groups}
    found |= {f"resource.customizations.knownTypeFields.{kind}": _FIELDS for kind in _POD_SPECS if _group(kind) in groups}
    return dict(sorted(found.items()))


def config_map(spec: ClusterSpec, releases: Iterable[Release]) -> dict[str, Any]:
    """The merge patch of argocd-cm: our keys and no others."""
    meta = {"name": CONFIG_MAP, "namespace": delivery(spec).namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": settings(releases)}


def _group(kind: str) -> str:
    return kind.rpartition("_")[0]


@cache
def health_scripts() -> dict[str, str]:
    """GROUP_KIND → Lua of every kind, by file name; without comments and indents, which argocd-cm needs not.

    tests/cluster/health has cases for every outcome of each, which the real Argo CD evaluates.
    """
    folder = Path(__file__).with_name("health")
    read = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.glob("*.lua"))}
    found = {kind: "".join(f"{line.strip()}\n" for line in lines if not line.startswith("--")) for kind, lines in read.items()}
    return found | {kind: found[same] for kind, same in _ALIKE.items()}
