"""Decides if Slurm can use a node, from the states and the Gres (its number of GPUs) that Slurm reports."""

from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail
from steps.stages.shared.gate_slurm_states import state
from steps.stages.slurm.contract import SlurmNode


def problem(node: SlurmNode, gpus: int = 0, *, powered_down: bool = False) -> Finding | None:
    """Return the finding that says why Slurm cannot use a node; None if it can.

    `gpus` is the number of GPUs that Slurm must count, 0 to skip that check. `powered_down`: the node may sleep until a job wants
    it.
    """
    finding = state(node.states, node.reason, powered_down=powered_down)
    if finding or not gpus or node.gpus == gpus:
        return finding
    step = "compare slurmd -C on the node with the NodeSet's Gres and gres.conf, then restart slurmd"
    return fail(FailureClass.HARDWARE, f"Slurm's Gres is {node.gres or 'empty'}", f"{gpus} GPUs", step)
