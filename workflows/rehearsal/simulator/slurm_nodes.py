"""Slurm's view of its nodes: which slurmds registered, in which states and with how many GPUs, as conditions of their pods."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator import pods
from workflows.rehearsal.simulator.kinds import NODES, PODS, STATEFUL_SETS, Obj, Ref, custom
from workflows.rehearsal.simulator.world import World

NODE_SETS = custom("slinky.slurm.net", "NodeSet")
NAME = "app.kubernetes.io/name"
STATE = "SlurmNodeState"
LOWER = "gres/gpu count reported lower than configured ({seen} < {configured})"


def answers(world: World) -> bool:
    """Whether slurmctld answers."""
    return any(
        (found.get("status") or {}).get("readyReplicas") and found["metadata"]["name"].endswith("-controller")
        for found in world.objects(STATEFUL_SETS)
    )


def register(world: World, at: Ref) -> None:
    """A ready slurmd registers after some seconds; what Slurm says of a known node changes at once."""
    pod = world.find(PODS, at.name, at.namespace)
    if pod is None or not is_slurmd(pod) or not pods.ready(pod) or not answers(world):
        return
    known = [entry["type"].removeprefix(STATE) for entry in told(pod)]
    if known != list(_states(world, pod)[0]):
        low, high = (0.0, 0.0) if known else (3.0, 15.0)
        world.later(f"slinky/{at.namespace}/{at.name}/register", low, high, functools.partial(_tell, world, at))


def is_slurmd(pod: Obj) -> bool:
    """Whether a pod runs slurmd."""
    return (pod["metadata"].get("labels") or {}).get(NAME) == "slurmd"


def told(pod: Obj) -> list[Obj]:
    """What Slurm says of the node, as conditions of its pod; empty until it registered."""
    return [entry for entry in pod.get("status", {}).get("conditions") or () if entry["type"].startswith(STATE)]


def _tell(world: World, at: Ref) -> None:
    """Slurm's states of the node as conditions of its pod, each with the node's reason (pkg/conditions of the operator)."""
    pod = world.find(PODS, at.name, at.namespace)
    if pod is None or not pods.ready(pod):
        return
    states, reason = _states(world, pod)
    known = {entry["type"]: entry for entry in told(pod)}
    others = [entry for entry in pod["status"]["conditions"] if not entry["type"].startswith(STATE)]
    made = [
        {"type": STATE + state, "status": "True", "message": reason}
        | {"lastTransitionTime": known.get(STATE + state, {}).get("lastTransitionTime") or world.stamp()}
        for state in states
    ]
    world.patch_soon(PODS, pod, {"status": {"conditions": [*others, *made]}}, status=True)


def _states(world: World, pod: Obj) -> tuple[tuple[str, ...], str]:
    node, configured = pods.node(pod), _gpus(world, pod)
    if world.fault("slurm_gres_lower_than_configured", node) and configured:
        return ("Idle", "Drain", "InvalidReg"), LOWER.format(seen=configured - 1, configured=configured)
    if world.fault("slurm_nodes_drained", node):
        return ("Idle", "Drain"), "Low RealMemory (reported:257000 < 100.00% of configured:2063830)"
    found = world.find(NODES, node)
    if found is not None and found["spec"].get("unschedulable"):
        return ("Idle", "Drain"), f"slurm-operator: node ({node}) was cordoned"
    if world.fault("slurm_nodes_down", node):
        return ("Down", "NotResponding"), "Not responding"
    return ("Idle",), ""


def _gpus(world: World, pod: Obj) -> int:
    count = gres(world, pod).rpartition(":")[2]
    return int(count) if count.isdigit() else 0


def gres(world: World, pod: Obj) -> str:
    """The Gres that the pod's NodeSet promises: `gpu:h200:8`."""
    owner = next((entry["name"] for entry in pod["metadata"].get("ownerReferences") or () if entry["kind"] == "NodeSet"), "")
    nodeset = world.find(NODE_SETS, owner, pod["metadata"]["namespace"])
    pairs = (pair.partition("=") for pair in (nodeset["spec"].get("extraConf") or "").split()) if nodeset else ()
    return next((value for key, _, value in pairs if key == "Gres"), "")
