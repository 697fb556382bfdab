"""Stage factory_registry: the pods of a simulated registry, and of the check that pushes an artefact and pulls it on every node."""

from __future__ import annotations

import hashlib

from workflows.rehearsal.simulator.api.api_kinds import DEPLOYMENTS, Obj, annotations_of, labels_of
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, BlockedStart, Exit, blocked_by, check
from workflows.rehearsal.simulator.world import World

SPACE, NAME = "registry", "registry"
INDEX, OWNER = "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/controller-uid"

blocked_by("registry_down", "app", NAME, "back-off 5m0s restarting failed container=registry")


@check("registry")
def push_and_pull(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the script `registry_push_pull.sh`: the first pod pushes what the Job's uid says, and each pod pulls it.

    Then the node pulls the image of the main container. Without a ready registry every request fails, as it does while nothing
    listens behind the Service.
    """
    index = int(labels_of(pod).get(INDEX) or annotations_of(pod).get(INDEX) or 0)
    nonce, deployment = labels_of(pod).get(OWNER, ""), world.find(DEPLOYMENTS, NAME, SPACE)
    image = str(pod["spec"]["containers"][0]["image"])
    report: Obj = {"node": node, "wanted": nonce, "pushed": "", "image": "", "pulled": "", "error": ""}
    serves = deployment is not None and bool((deployment.get("status") or {}).get("readyReplicas"))
    if not serves:
        return _unpulled(
            image, "connection refused", report | {"error": "begin of an upload: " if index == 0 else "manifest of tag: "}
        )
    if world.fault("registry_refuses_pushes"):
        return _unpulled(
            image, "not found", report | {"error": "begin of an upload: 405" if index == 0 else "manifest of tag: 404"}
        )
    digest, pushed = _digest(nonce), _digest(f"image {nonce}")
    report |= {"pushed": digest, "image": pushed} if index == 0 else {}
    if world.fault("registry_loses_blobs"):
        return _unpulled(image, "not found", report | {"error": f"blob {digest}: 404"})
    report |= {"pulled": nonce}
    if world.fault("registry_ca_unknown", node):
        return _unpulled(image, "tls: failed to verify certificate: x509: certificate signed by unknown authority", report)
    if world.fault("registry_mirror_stale", node):
        pushed = _digest("image of an earlier check")
    return Exit(before=report, image_id=f"{image.rpartition(':')[0]}@{pushed}", seconds=10)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _unpulled(image: str, error: str, report: Obj) -> BlockedStart:
    """Return the behaviour of a pod whose init container left this report, and whose node cannot pull the image of the next."""
    failed = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {error}'
    message = f'Back-off pulling image "{image}": ErrImagePull: {failed}'
    return BlockedStart(reason="ImagePullBackOff", message=message, before=report)
