"""Simulated controllers of namespaces and service accounts, the garbage collector, and the protection of volume claims in use."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator.api.api_client import SimulatorApiError
from workflows.rehearsal.simulator.api.api_kinds import (  # fmt: skip
    CLAIMS,
    CONFIG_MAPS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Obj,
    ObjectKind,
    Ref,
    ref,
)
from workflows.rehearsal.simulator.world import Changes, World

ROOT_CA = "kube-root-ca.crt"


class NamespaceController:
    """Simulated namespace and service account controllers of kube-controller-manager."""

    name = "namespaces"
    kinds = (NAMESPACES, SERVICE_ACCOUNTS, SERVICES, CONFIG_MAPS, SECRETS, CLAIMS, LEASES)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Give each namespace its ServiceAccount `default` and its CA ConfigMap; schedule the end of namespaces under deletion."""
        for namespace in world.objects(NAMESPACES):
            name = namespace["metadata"]["name"]
            if "deletionTimestamp" in namespace["metadata"]:
                world.later(f"namespaces/{name}/end", 1, 4, functools.partial(_end, world, name))
            else:
                world.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
                certificate = {"ca.crt": "simulated"}
                world.create(CONFIG_MAPS, {"metadata": {"name": ROOT_CA, "namespace": name}, "data": certificate})


def _end(world: World, name: str) -> None:
    """Delete the objects in a namespace under deletion, then finish the namespace itself.

    While objects with finalizers remain, it tries again every 5 virtual seconds.
    """
    namespace = world.refresh(NAMESPACES, Ref("", name))
    if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
        return
    left = 0
    for kind in world.kinds:
        for obj in list(world.select(kind, name)) if kind.namespaced else ():
            world.delete(kind, obj)
            left += world.find(kind, ref(obj)) is not None
    if left:
        world.later(f"namespaces/{name}/end", 5, 5, lambda: _end(world, name))
        return
    try:
        world.api.replace(NAMESPACES, namespace | {"spec": {"finalizers": []}}, "finalize")
    except SimulatorApiError as error:
        if error.status not in (404, 409):
            raise
    world.refresh(NAMESPACES, Ref("", name))


FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
"""Finalizer that a real API server gives each volume claim; kube-controller-manager removes it once no pod uses the claim."""


class GarbageCollector:
    """Simulated garbage collector, with the protection of volume claims.

    It deletes dependents of the kinds that any role tracks; dependents of other kinds stay.
    """

    name = "garbage"
    kinds = ()

    def __init__(self) -> None:
        self._uids: dict[tuple[ObjectKind, Ref], str] = {}
        self._owned: dict[str, dict[tuple[ObjectKind, Ref], None]] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Record the owners of changed objects, and delete the dependents of removed ones."""
        for kind in world.kinds:
            for at in [ref(obj) for obj in world.objects(kind)] if changed.everything else changed.refs(kind):
                obj = world.find(kind, at)
                if obj is None:
                    self._gone(world, kind, at)
                else:
                    self._seen(world, kind, at, obj)
        _release_claims(world)

    def _seen(self, world: World, kind: ObjectKind, at: Ref, obj: Obj) -> None:
        meta = obj["metadata"]
        former = self._uids.get((kind, at))
        # An object that was deleted and created again between two calls still leaves dependents behind.
        if former is not None and former != meta["uid"]:
            self._gone(world, kind, at)
        self._uids[kind, at] = meta["uid"]
        for owner in meta.get("ownerReferences") or ():
            self._owned.setdefault(owner["uid"], {})[kind, at] = None
        finalizers = meta.get("finalizers") or []
        if "deletionTimestamp" in meta and (FOREGROUND in finalizers or ORPHAN in finalizers):
            if ORPHAN in finalizers:
                self._owned.pop(meta["uid"], None)
            self._delete_owned(world, meta["uid"])
            kept = [entry for entry in finalizers if entry not in (FOREGROUND, ORPHAN)]
            world.patch(kind, at, {"metadata": {"finalizers": kept}})

    def _gone(self, world: World, kind: ObjectKind, at: Ref) -> None:
        uid = self._uids.pop((kind, at), "")
        if uid:
            self._delete_owned(world, uid)

    def _delete_owned(self, world: World, uid: str) -> None:
        for kind, at in self._owned.pop(uid, {}):
            obj = world.find(kind, at)
            if obj is None:
                continue
            others = [owner for owner in obj["metadata"].get("ownerReferences") or () if owner["uid"] != uid]
            # The object no longer names this owner, or another object took its name.
            if len(others) == len(obj["metadata"].get("ownerReferences") or ()):
                continue
            if others:
                world.patch(kind, at, {"metadata": {"ownerReferences": others}})
            else:
                (world.delete if obj["metadata"].get("finalizers") else world.delete_soon)(kind, at)


def _release_claims(world: World) -> None:
    """Remove the protection of claims under deletion that no pod uses. Source: Kubernetes, pkg/controller/volume/pvcprotection."""
    for claim in list(world.objects(CLAIMS)) if CLAIMS in world.kinds else ():
        finalizers = claim["metadata"].get("finalizers") or []
        if "deletionTimestamp" in claim["metadata"] and CLAIM_PROTECTION in finalizers and not _is_used(world, ref(claim)):
            kept = [entry for entry in finalizers if entry != CLAIM_PROTECTION]
            world.patch(CLAIMS, ref(claim), {"metadata": {"finalizers": kept}})


def _is_used(world: World, claim: Ref) -> bool:
    """Return True if a pod that has not ended mounts a claim."""
    pods = world.select(PODS, claim.namespace) if PODS in world.kinds else ()
    return any(
        (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim.name
        for pod in pods
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        for volume in pod["spec"].get("volumes") or ()
    )


ROLES = (NamespaceController, GarbageCollector)
