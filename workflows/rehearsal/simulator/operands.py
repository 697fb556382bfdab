"""What operators create besides their charts: owned DaemonSets, and whether their pods serve every selected node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workflows.rehearsal.simulator.kinds import DAEMON_SETS, DEPLOYMENTS, Kind, Obj
from workflows.rehearsal.simulator.world import World


def daemon_set(
    world: World,
    owner: tuple[Kind, Obj],
    namespace: str,
    name: str,
    *,
    selector: Mapping[str, str],
    init: Iterable[str] = (),
    image: str = "",
    on_delete: bool = False,
) -> Obj:
    """Create or update a DaemonSet that belongs to a custom resource; its pods carry `app: NAME` and tolerate every taint."""
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


def serves_all(found: Obj | None) -> bool:
    """What operators call ready: no pod of the newest template is unavailable; a set that selects no node is ready."""
    status = (found or {}).get("status") or {}
    seen = found is not None and status.get("observedGeneration", 0) >= found["metadata"].get("generation", 1)
    return seen and not status.get("numberUnavailable", 0)


def runs(world: World, namespace: str, deployment: str) -> bool:
    """Whether an operator's own Deployment has a ready pod: only then does it do anything."""
    found = world.find(DEPLOYMENTS, deployment, namespace)
    return found is not None and bool((found.get("status") or {}).get("readyReplicas"))
