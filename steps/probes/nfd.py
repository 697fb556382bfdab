"""Reads every NFD of the cluster, whoever installed it."""

from steps.probes import workloads
from steps.probes.reader import KubeReader


def nfd_workers(kube: KubeReader) -> tuple[str, ...]:
    """DaemonSets of NFD workers in all namespaces: two of them overwrite each other's labels (gpu_stack §0.8)."""
    found = kube.list("/apis/apps/v1/daemonsets", workloads.Raw) or ()
    return tuple(sorted(f"{raw.metadata.namespace}/{raw.metadata.name}" for raw in found if _is_nfd_worker(raw)))


def _is_nfd_worker(raw: workloads.Raw) -> bool:
    meta = raw.metadata
    named = "node-feature-discovery-worker" in meta.name or "nfd-worker" in meta.name
    labelled = meta.labels.get("app.kubernetes.io/name") == "node-feature-discovery" and meta.labels.get("role") == "worker"
    return named or labelled
