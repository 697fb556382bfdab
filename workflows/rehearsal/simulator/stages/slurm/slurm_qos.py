"""QoS in the simulated accounting of Slurm: the script that creates them, played in the pod where it runs."""

from __future__ import annotations

from collections.abc import Mapping

from workflows.rehearsal.simulator.api.api_kinds import STATEFUL_SETS, Obj, annotations_of
from workflows.rehearsal.simulator.controllers.container_commands import container_command
from workflows.rehearsal.simulator.machines.played_commands import PlayedOutput
from workflows.rehearsal.simulator.world import World

KNOWN = "simulated/qos"
"""Annotation of the controller's StatefulSet with the names of the QoS that were created."""
CONTROLLER = "slurm-controller"
USUAL = "normal"


def known(world: World, namespace: str) -> tuple[str, ...]:
    """Return the QoS of a namespace's cluster: the one that every database has, and those that were created."""
    controller = world.find(STATEFUL_SETS, CONTROLLER, namespace)
    created = annotations_of(controller).get(KNOWN, "") if controller is not None else ""
    return (USUAL, *filter(None, created.split(",")))


@container_command("qos")
def create(world: World, pod: Obj, variables: Mapping[str, str]) -> PlayedOutput:
    """Play `workflows/stages/scripts/slurm_qos.sh`: without a registered database sacctmgr knows no QoS."""
    space = pod["metadata"]["namespace"]
    controller = world.find(STATEFUL_SETS, CONTROLLER, space)
    wanted = [entry.split()[0] for entry in variables.get("QOS", "").split(";") if entry.strip()]
    if controller is None or world.fault("slurm_accounting_unregistered"):
        return PlayedOutput(stderr=f"sacctmgr has no qos {wanted[0]}\n", code=1)
    before = known(world, space)
    added = [name for name in wanted if name not in before]
    if added:
        world.patch(STATEFUL_SETS, controller, {"metadata": {"annotations": {KNOWN: ",".join([*before[1:], *added])}}})
    return PlayedOutput(stdout="".join(f"changed qos {name}\n" for name in added), seconds=5)
