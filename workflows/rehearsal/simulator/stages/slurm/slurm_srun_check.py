"""Stage slurm: the check `srun` on the nodes of a simulated Slurm cluster, in the form of `workflows/stages/scripts/srun.sh`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workflows.rehearsal.simulator.stages.slurm.slurm_controller import ControlledNode
from workflows.rehearsal.simulator.world import World

NO_CONTROLLER = "slurm_load_partitions: Unable to contact slurm controller (connect failure)"


def report(world: World, nodes: Sequence[ControlledNode], *, answers: bool, gpus: bool) -> tuple[str, dict[str, int]]:
    """Return what the check prints of the nodes, and the exit codes of its commands. `answers`: slurmctld does."""
    if not answers:
        return f"@sinfo\n@reasons\n@hosts\n@gpus\n@errors\n{NO_CONTROLLER}\n", {"sinfo": 1, "hosts": 0, "gpus": 0}
    idle = [node for node in nodes if node.state == "idle"]
    refused = sorted(node.name for node in idle if world.fault("slurm_key_differs", node.host))
    reached = sorted((node for node in idle if node.name not in refused), key=lambda node: node.name)
    sections: dict[str, Iterator[str]] = {
        "sinfo": (f"{node.state}|{node.gres + '(S:0-1)' if node.gres else '(null)'}|{node.name}" for node in nodes),
        "reasons": (f"{node.reason}|{node.name}" for node in nodes if node.reason),
        "hosts": (node.name for node in reached),
        "gpus": (_kernel_line(world, node) for node in reached if gpus and node.gpus),
        "errors": (f"srun: error: Task launch for 1.0 failed on node {name}: Invalid job credential" for name in refused),
    }
    text = "".join(f"@{name}\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())
    return text, {"sinfo": 0, "hosts": 1 if refused else 0, "gpus": 123 if refused and gpus else 0}


def _kernel_line(world: World, node: ControlledNode) -> str:
    """Return what a job prints: its host, the GPUs that it sees, those that added vectors, and an error."""
    count = node.gpus - bool(world.fault("slurm_job_misses_gpu", node.host))
    if world.fault("slurm_job_without_cuda", node.host):
        return f"{node.name} {count} 0 no CUDA-capable device is detected"
    return f"{node.name} {count} {count}"
