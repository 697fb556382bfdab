"""Stage slurm: drains of Slurm nodes by scontrol on the simulated slurmctld, which keeps them among the facts of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workflows.rehearsal.simulator.api.api_kinds import NODES, PODS, Obj
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.container_commands import container_command
from workflows.rehearsal.simulator.machines.played_commands import PlayedOutput
from workflows.rehearsal.simulator.world import World

DRAIN = "slurm_drain"
"""Key of a host under which slurmctld keeps why a person drained its Slurm node."""
LOW_MEMORY = "Low RealMemory (reported:257000 < 100.00% of configured:2063830)"
BY_HAND = "bringup: check of drains"


def reason_of(world: World, host: str) -> str:
    """Return why a person drained the Slurm node of a host; empty if nobody did."""
    return str(world.hosts.get(host, {}).get(DRAIN, ""))


@container_command("slurm-drain")
def scontrol(world: World, pod: Obj, variables: Mapping[str, str]) -> PlayedOutput:
    """Play `workflows/stages/scripts/slurm_drain.sh`: drain, resume or show one node."""
    name, action = variables.get("NODE", ""), variables.get("ACTION", "")
    slurmd = next((item for item in world.select(PODS, pod["metadata"]["namespace"], {}) if _named(item, name)), None)
    if slurmd is None:
        return PlayedOutput(stderr=f"scontrol: error: Node {name} not found\n", code=1)
    host = simulated_pods.node(slurmd)
    if action == "drain":
        world.hosts.setdefault(host, {})[DRAIN] = BY_HAND
    if action == "resume":
        world.hosts.setdefault(host, {}).pop(DRAIN, None)
    if action in ("drain", "resume"):
        world.wake()
    reason = reason_of(world, host) or cordoned(world, host)
    state, why = ("IDLE+DRAIN", f" Reason={reason} [root@2026-11-29T12:00:00]") if reason else ("IDLE", "")
    return PlayedOutput(stdout=f"NodeName={name} Arch=x86_64 State={state} ThreadsPerCore=1{why}\n", seconds=1)


def cordoned(world: World, host: str) -> str:
    """Return the reason with which the operator drains the Slurm node of a cordoned node; empty if it does not."""
    node = world.find(NODES, host) or {"spec": {}}
    ignored = world.fault("slurm_cordon_ignored")
    return f"slurm-operator: node ({host}) was cordoned" if node["spec"].get("unschedulable") and not ignored else ""


def _named(pod: Obj, name: str) -> bool:
    containers: Sequence[Obj] = pod["spec"]["containers"]
    return name in (pod["spec"].get("hostname"), pod["metadata"]["name"]) and any(entry["name"] == "slurmd" for entry in containers)
