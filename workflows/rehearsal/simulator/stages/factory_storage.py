"""Stage factory_storage: a simulated NFS server's folder in claims that are bound by name, and in the pods of the check."""

from __future__ import annotations

from workflows.rehearsal.simulator.api.api_kinds import CLAIMS, VOLUMES, Obj, annotations_of, labels_of, ref
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, check
from workflows.rehearsal.simulator.stages.factory_registry import INDEX, OWNER
from workflows.rehearsal.simulator.world import Changes, World


class StaticVolumes:
    """Simulated volume binder for claims that name their volume, as kube-controller-manager binds them."""

    name = "static_volumes"
    kinds = (CLAIMS, VOLUMES)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Bind each claim that names a volume which is reserved for it."""
        for claim in list(world.objects(CLAIMS)):
            at, spec = ref(claim), claim["spec"]
            if (claim.get("status") or {}).get("phase") == "Bound" or not spec.get("volumeName"):
                continue
            volume = world.find(VOLUMES, spec["volumeName"])
            reserved = volume["spec"].get("claimRef") if volume else None
            if volume and reserved and (reserved.get("namespace"), reserved.get("name")) == (at.namespace, at.name):
                status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": volume["spec"]["capacity"]}
                world.patch(CLAIMS, at, {"status": status}, status=True)


@check("share")
def share(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the script `shared_volume.sh`: the first pod writes the Job's uid, and each pod reads it."""
    index = int(labels_of(pod).get(INDEX) or annotations_of(pod).get(INDEX) or 0)
    nonce = labels_of(pod).get(OWNER, "")
    report: Obj = {"node": node, "wrote": "", "read": "", "error": ""}
    if world.fault("share_read_only"):
        return Exit(message=report | {"error": "cannot write" if index == 0 else "no file after 120 s"}, seconds=120)
    report |= {"wrote": nonce} if index == 0 else {}
    if world.fault("volume_not_shared") and index:
        return Exit(message=report | {"error": "no file after 120 s"}, seconds=120)
    return Exit(message=report | {"read": nonce}, seconds=5)


ROLES = (StaticVolumes,)
