"""Reads the log of SUNK's syncer."""

from steps.stages.shared import kube_objects, probe_workloads
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.slurm import reader_syncer
from steps.stages.slurm.contract import SyncerLog

LABEL = "app.kubernetes.io/name=sunk-syncer"
SIDECARS = ("munge",)
SECONDS, LINES = 60, 400
"""Age and number of the lines that are read: the syncer fails for two minutes after an installation, until its keys exist."""


def read(kube: KubeReader, namespace: str) -> tuple[SyncerLog, ...]:
    """Return the ready pods of the syncer with the errors in their logs."""
    pods = probe_workloads.pods(kube, namespace, LABEL)
    return tuple(_log(kube, namespace, pod) for pod in pods if pod.ready)


def _log(kube: KubeReader, namespace: str, pod: kube_objects.Pod) -> SyncerLog:
    """Return the log of a pod's own container; a log that cannot be read is not known, and not empty."""
    name = pod.metadata.name
    own = next((entry.name for entry in pod.status.container_statuses if entry.name not in SIDECARS), "")
    place = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
    text = kube.text(f"{place}?container={own}&sinceSeconds={SECONDS}&tailLines={LINES}")
    if text is None or text.startswith('{"kind":"Status"'):
        return SyncerLog(pod=name)
    return SyncerLog(pod=name, is_known=True, errors=reader_syncer.errors(text))
