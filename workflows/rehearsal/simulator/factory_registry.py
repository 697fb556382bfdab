"""Stage factory_registry: the pods of a simulated registry, and of the check that pushes an artefact and pulls it on every node."""

from __future__ import annotations

import hashlib

from workflows.rehearsal.simulator.api_kinds import DEPLOYMENTS, Obj, annotations_of, labels_of
from workflows.rehearsal.simulator.simulated_pods import Behaviour, Exit, blocked_by, check
from workflows.rehearsal.simulator.world import World

SPACE, NAME = "registry", "registry"
INDEX, OWNER = "batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/controller-uid"

blocked_by("registry_down", "app", NAME, "back-off 5m0s restarting failed container=registry")


@check("registry")
def push_and_pull(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the script `registry_push_pull.sh`: the first pod pushes what the Job's uid says, and each pod pulls it.

    Without a ready registry every request fails, as it does while nothing listens behind the Service.
    """
    index = int(labels_of(pod).get(INDEX) or annotations_of(pod).get(INDEX) or 0)
    nonce, deployment = labels_of(pod).get(OWNER, ""), world.find(DEPLOYMENTS, NAME, SPACE)
    report: Obj = {"node": node, "wanted": nonce, "pushed": "", "pulled": "", "error": ""}
    serves = deployment is not None and bool((deployment.get("status") or {}).get("readyReplicas"))
    if not serves:
        return Exit(message=report | {"error": "begin of an upload: " if index == 0 else "manifest of tag: "}, seconds=180)
    if world.fault("registry_refuses_pushes"):
        return Exit(message=report | {"error": "begin of an upload: 405" if index == 0 else "manifest of tag: 404"}, seconds=180)
    digest = f"sha256:{hashlib.sha256(nonce.encode()).hexdigest()}"
    report |= {"pushed": digest} if index == 0 else {}
    if world.fault("registry_loses_blobs"):
        return Exit(message=report | {"error": f"blob {digest}: 404"}, seconds=180)
    return Exit(message=report | {"pulled": nonce}, seconds=10)
