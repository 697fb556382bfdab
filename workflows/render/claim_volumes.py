"""The volume with the published folder, which only pods that publish mount, at the path at which nodes have it.

That path is built into what is published, so it is the one path of a manifest outside ROOT. A kubelet mounts the volume there; the
embedded engine mounts nothing, and its processes see the folder of their machine.
"""

from typing import Any, Final

from hera.workflows import models as m

from workflows.plan.model import Plan
from workflows.stages.stage import ClaimMount

VOLUME: Final = "published"
"""Name of the volume; the only one that `manifest_policy` accepts outside ROOT."""


def claim_of(plan: Plan) -> ClaimMount | None:
    """Return the claim with the folder that a plan publishes to; None if no pod of it mounts one."""
    return next((step.claim for stage in plan.stages for step in stage.steps if step.claim is not None), None)


def mounts(claim: ClaimMount | None, *, is_read_only: bool = False) -> list[m.VolumeMount]:
    """Return the mount of a claim's folder in a container, in a list; empty without a claim."""
    if claim is None:
        return []
    return [m.VolumeMount(name=VOLUME, mount_path=claim.path, sub_path=claim.folder or None, read_only=is_read_only or None)]


def volumes(claim: ClaimMount | None) -> list[m.Volume]:
    """Return the volume of a claim, in a list; empty without a claim. Argo adds it only to pods that mount it."""
    if claim is None:
        return []
    return [m.Volume(name=VOLUME, persistent_volume_claim=m.PersistentVolumeClaimVolumeSource(claim_name=claim.claim))]


def outside_paths(template: dict[str, Any], *, is_read_only: bool) -> set[str]:
    """Return the paths at which a container template mounts the published folder; with `is_read_only` those without writes."""
    listed = template["container"].get("volumeMounts") or ()
    return {
        str(mount.get("mountPath"))
        for mount in listed
        if mount.get("name") == VOLUME and (mount.get("readOnly") is True or not is_read_only)
    }
