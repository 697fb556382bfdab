"""Objects that the contract's tests write, and how they wait for a server that needs a moment."""

import time
from typing import Any

from kubernetes.client.rest import ApiException

NODES = 70


def node(number: int) -> dict[str, Any]:
    name = f"gpu-{number:04d}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"su-{number // 32:03d}",
        "nvidia.com/gpu.present": "true",
    }
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    times = {"lastHeartbeatTime": "2026-11-21T09:00:00Z", "lastTransitionTime": "2026-11-21T08:00:00Z"}
    conditions = [{"type": kind, "status": str(kind == "Ready"), "reason": "Test", "message": "", **times} for kind in kinds]
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"sim://{name}", "taints": taints},
        "status": {"capacity": {"cpu": "224", "nvidia.com/gpu": "8"}, "conditions": conditions},
    }


def helm_chart(name: str, namespace: str, **spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChart",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"a": "1"}}, "data": data}


def eventually(call: Any) -> Any:
    """A real server serves a new CRD a moment after it was created."""
    end = time.monotonic() + 60
    while True:
        try:
            return call()
        except ApiException as error:
            if error.status != 404 or time.monotonic() > end:
                raise
