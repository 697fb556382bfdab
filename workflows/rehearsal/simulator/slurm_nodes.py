"""Slurm's nodes: registered slurmds with their states and GPUs, as conditions of their pods."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator import pod_objects
from workflows.rehearsal.simulator.api_kinds import NODES, PODS, STATEFUL_SETS, Obj, Ref, custom
from workflows.rehearsal.simulator.world import World

NODE_SETS = custom("slinky.slurm.net", "NodeSet")
NAME = "app.kubernetes.io/name"
STATE = "SlurmNodeState"
LOWER = "gres/gpu count reported lower than configured ({seen} < {configured})"


def slurmctld_answers(world: World) -> bool:
    """Return True if slurmctld answers."""
    return any(
        (stateful_set.get("status") or {}).get("readyReplicas") and stateful_set["metadata"]["name"].endswith("-controller")
        for stateful_set in world.objects(STATEFUL_SETS)
    )


def register(world: World, at: Ref) -> None:
    """Register a ready slurmd after some seconds; a changed state of a known node is written at once."""
    pod = world.find(PODS, at.name, at.namespace)
    if pod is None or not is_slurmd(pod) or not pod_objects.ready(pod) or not slurmctld_answers(world):
        return
    states = [entry["type"].removeprefix(STATE) for entry in node_conditions(pod)]
    if states != list(_states(world, pod)[0]):
        low, high = (0.0, 0.0) if states else (3.0, 15.0)
        world.later(f"slinky/{at.namespace}/{at.name}/register", low, high, functools.partial(_write_conditions, world, at))


def is_slurmd(pod: Obj) -> bool:
    """Return True if a pod runs slurmd."""
    return (pod["metadata"].get("labels") or {}).get(NAME) == "slurmd"


def node_conditions(pod: Obj) -> list[Obj]:
    """Return Slurm's states of the node as conditions of its pod; empty until it has registered."""
    return [entry for entry in pod.get("status", {}).get("conditions") or () if entry["type"].startswith(STATE)]


def _write_conditions(world: World, at: Ref) -> None:
    """Write Slurm's node states as conditions of the pod, each with the node's reason, as slurm-operator does."""
    pod = world.find(PODS, at.name, at.namespace)
    if pod is None or not pod_objects.ready(pod):
        return
    states, reason = _states(world, pod)
    present = {entry["type"]: entry for entry in node_conditions(pod)}
    others = [entry for entry in pod["status"]["conditions"] if not entry["type"].startswith(STATE)]
    own = [
        {"type": STATE + state, "status": "True", "message": reason}
        | {"lastTransitionTime": present.get(STATE + state, {}).get("lastTransitionTime") or world.stamp()}
        for state in states
    ]
    world.patch_soon(PODS, pod, {"status": {"conditions": [*others, *own]}}, status=True)


def _states(world: World, pod: Obj) -> tuple[tuple[str, ...], str]:
    node, configured = pod_objects.node(pod), _gpus(world, pod)
    if world.fault("slurm_gres_lower_than_configured", node) and configured:
        return ("Idle", "Drain", "InvalidReg"), LOWER.format(seen=configured - 1, configured=configured)
    if world.fault("slurm_nodes_drained", node):
        return ("Idle", "Drain"), "Low RealMemory (reported:257000 < 100.00% of configured:2063830)"
    node_object = world.find(NODES, node)
    if node_object is not None and node_object["spec"].get("unschedulable"):
        return ("Idle", "Drain"), f"slurm-operator: node ({node}) was cordoned"
    if world.fault("slurm_nodes_down", node):
        return ("Down", "NotResponding"), "Not responding"
    return ("Idle",), ""


def _gpus(world: World, pod: Obj) -> int:
    count = gres(world, pod).rpartition(":")[2]
    return int(count) if count.isdigit() else 0


def gres(world: World, pod: Obj) -> str:
    """Return the Gres that the pod's NodeSet promises: `gpu:h200:8`."""
    owner = next((entry["name"] for entry in pod["metadata"].get("ownerReferences") or () if entry["kind"] == "NodeSet"), "")
    nodeset = world.find(NODE_SETS, owner, pod["metadata"]["namespace"])
    pairs = (pair.partition("=") for pair in (nodeset["spec"].get("extraConf") or "").split()) if nodeset else ()
    return next((value for key, _, value in pairs if key == "Gres"), "")
