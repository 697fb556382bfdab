"""The namespace and service account controllers: default accounts, and the end of deleted namespaces."""

from __future__ import annotations

from workflows.rehearsal.simulator.api_client import SimulatorApiError
from workflows.rehearsal.simulator.api_kinds import (  # fmt: skip
    CLAIMS,
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Obj,
    Ref,
    ref,
)
from workflows.rehearsal.simulator.role import Changes
from workflows.rehearsal.simulator.world import World

ROOT_CA = "kube-root-ca.crt"


class NamespaceController:
    """The role that plays both controllers of kube-controller-manager."""

    name = "namespaces"
    kinds = (NAMESPACES, SERVICE_ACCOUNTS, SERVICES, CONFIG_MAPS, SECRETS, CLAIMS, LEASES)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Give each namespace its default objects; empty and finish those under deletion."""
        for namespace in world.objects(NAMESPACES):
            name = namespace["metadata"]["name"]
            if "deletionTimestamp" in namespace["metadata"]:
                world.later(f"namespaces/{name}/end", 1, 4, lambda name=name: _end(world, name))  # type: ignore[misc]
            else:
                _equip(world, name)


def _equip(world: World, name: str) -> None:
    if world.find(SERVICE_ACCOUNTS, "default", name) is None:
        world.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
    if world.find(CONFIG_MAPS, ROOT_CA, name) is None:
        body: Obj = {"metadata": {"name": ROOT_CA, "namespace": name}, "data": {"ca.crt": "simulated"}}
        world.create(CONFIG_MAPS, body)


def _end(world: World, name: str) -> None:
    """Delete a namespace's contents, then its own finalizer. Objects with finalizers keep it waiting."""
    namespace = world.refresh(NAMESPACES, Ref("", name))
    if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
        return
    left = 0
    for kind in world.kinds:
        for obj in list(world.select(kind, name)) if kind.namespaced else ():
            world.delete(kind, obj)
            left += world.find(kind, *reversed(ref(obj))) is not None
    if left:
        world.later(f"namespaces/{name}/end", 5, 5, lambda: _end(world, name))
        return
    try:
        world.api.replace(NAMESPACES, namespace | {"spec": {"finalizers": []}}, "finalize")
    except SimulatorApiError as error:
        if error.status not in (404, 409):
            raise
    world.refresh(NAMESPACES, Ref("", name))


ROLES = (NamespaceController,)
