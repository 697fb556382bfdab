"""Reads the Node Feature Discovery (NFD) workers of the whole cluster."""

from steps.stages.shared import probe_workloads
from steps.stages.shared.kube_reader import KubeReader


def nfd_workers(kube: KubeReader) -> tuple[str, ...]:
    """Return the DaemonSets of NFD workers in all namespaces as `NAMESPACE/NAME`."""
    daemons = kube.list("/apis/apps/v1/daemonsets", probe_workloads.Raw) or ()
    return tuple(sorted(f"{raw.metadata.namespace}/{raw.metadata.name}" for raw in daemons if _is_nfd_worker(raw)))


def _is_nfd_worker(raw: probe_workloads.Raw) -> bool:
    meta = raw.metadata
    named = "node-feature-discovery-worker" in meta.name or "nfd-worker" in meta.name
    labelled = meta.labels.get("app.kubernetes.io/name") == "node-feature-discovery" and meta.labels.get("role") == "worker"
    return named or labelled
