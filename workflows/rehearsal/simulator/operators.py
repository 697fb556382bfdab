"""Helpers that all simulated operators share: DaemonSets owned by custom resources, and readiness of workloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workflows.rehearsal.simulator.api_kinds import DAEMON_SETS, DEPLOYMENTS, Obj, ObjectKind
from workflows.rehearsal.simulator.world import World


def ensure_daemon_set(
    world: World,
    owner: tuple[ObjectKind, Obj],
    namespace: str,
    name: str,
    *,
    selector: Mapping[str, str],
    init: Iterable[str] = (),
    image: str = "",
    on_delete: bool = False,
) -> Obj:
    """Create or update a DaemonSet owned by a custom resource; its pods carry `app: NAME` and tolerate every taint."""
    kind, obj = owner
    picture = image or f"simulated/{name}:1"
    pod: Obj = {
        "nodeSelector": dict(selector),
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": name, "image": picture}],
    }
    steps = [{"name": step, "image": picture} for step in init]
    labels = {"app": name}
    body = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [kind.owner(obj)]},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete" if on_delete else "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": pod | ({"initContainers": steps} if steps else {})},
        },
    }
    return world.ensure(DAEMON_SETS, body)


def serves_every_node(daemon_set: Obj | None) -> bool:
    """Return True if operators would call the DaemonSet ready: no pod of the newest template is unavailable.

    A DaemonSet that selects no node counts as ready.
    """
    status = (daemon_set or {}).get("status") or {}
    seen = daemon_set is not None and status.get("observedGeneration", 0) >= daemon_set["metadata"].get("generation", 1)
    return seen and not status.get("numberUnavailable", 0)


def has_ready_pod(world: World, namespace: str, deployment: str) -> bool:
    """Return True if an operator's Deployment has a ready pod; without one the operator does nothing."""
    workload = world.find(DEPLOYMENTS, deployment, namespace)
    return workload is not None and bool((workload.get("status") or {}).get("readyReplicas"))
