"""Whether Slurm can use a node, from Slurm's own words for it and its Gres."""

from steps.contract.stages.slurm import SlurmNode
from steps.contract.verdict import FailureClass
from steps.gates.finding import Finding, fail, unknown

USABLE = frozenset({"idle", "allocated", "mixed", "completing"})
"""Base states in which a node runs or takes jobs."""

HARMLESS = frozenset({"completing", "planned", "undrain", "dynamic_norm", "cloud", "reservation", "reserved"})
"""Flags that do not keep jobs away."""


def problem(node: SlurmNode, gpus: int = 0, *, powered_down: bool = False) -> Finding | None:
    """Why Slurm cannot use a node; None when it can. `gpus` 0: not compared; `powered_down`: it may sleep until a job wants it."""
    found = state(node.states, node.reason, powered_down=powered_down)
    if found or not gpus or node.gpus == gpus:
        return found
    return fail(
        FailureClass.HARDWARE,
        f"Slurm's Gres is {node.gres or 'empty'}",
        f"{gpus} GPUs",
        "compare slurmd -C on the node with the NodeSet's Gres and gres.conf, then restart slurmd",
    )


def state(states: tuple[str, ...], reason: str = "", *, powered_down: bool = False) -> Finding | None:
    """Why a node in these states takes no jobs; None when it does."""
    if not states:
        return unknown(
            FailureClass.HEALTH, "Slurm tells no state of the node", "a state", "check that its slurmd reached slurmctld"
        )
    asleep = {"powered_down"} if powered_down else set()
    odd = [word for word in states if word not in USABLE | HARMLESS | asleep]
    if not odd and any(word in USABLE for word in states):
        return None
    why = f" ({reason})" if reason else ""
    return fail(
        FailureClass.HEALTH,
        f"Slurm state {'+'.join(states)}{why}",
        "idle, allocated or mixed",
        "remove the cause, then `scontrol update nodename=NODE state=resume`" if reason else "read slurmd's log on the node",
    )
