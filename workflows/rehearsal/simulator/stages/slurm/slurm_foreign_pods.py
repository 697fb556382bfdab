"""Stage slurm: pods of users that get GPUs of Slurm's nodes past Slurm."""

from __future__ import annotations

from workflows.rehearsal.simulator.api.api_kinds import PODS
from workflows.rehearsal.simulator.world import World


def create_foreign_pods(world: World) -> None:
    """Create pods of a user that get GPUs by the runtime class alone, on the victims of fault `slurm_foreign_pods`."""
    for host in world.fleet:
        name = f"notebook-{host.name}"
        if world.fault("slurm_foreign_pods", host.name) and world.find(PODS, name, "default") is None:
            terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host.name]}]}]
            pinned = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
            container = {"name": "notebook", "image": "simulated/notebook"}
            spec = {"runtimeClassName": "nvidia", "containers": [container], "affinity": pinned}
            world.create_soon(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
