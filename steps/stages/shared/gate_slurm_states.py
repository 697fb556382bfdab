"""Decides if a node of Slurm takes jobs, from the words of its state."""

from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown

USABLE = frozenset({"idle", "allocated", "mixed", "completing"})
"""Base states in which a node runs or takes jobs."""

HARMLESS = frozenset({"completing", "planned", "undrain", "dynamic_norm", "cloud", "reservation", "reserved"})
"""Additional state words of Slurm that do not keep jobs away from a node."""


def state(states: tuple[str, ...], reason: str = "", *, powered_down: bool = False) -> Finding | None:
    """Return the finding that says why a node in these states takes no jobs; None if it takes them. `reason` is Slurm's own reason.

    `powered_down`: a sleeping node counts as usable.
    """
    if not states:
        step = "check that its slurmd reached slurmctld"
        return unknown(FailureClass.HEALTH, "Slurm tells no state of the node", "a state", step)
    asleep = {"powered_down"} if powered_down else set()
    odd = [word for word in states if word not in USABLE | HARMLESS | asleep]
    if not odd and any(word in USABLE for word in states):
        return None
    why = f" ({reason})" if reason else ""
    resume = "remove the cause, then `scontrol update nodename=NODE state=resume`"
    step = resume if reason else "read slurmd's log on the node"
    return fail(FailureClass.HEALTH, f"Slurm state {'+'.join(states)}{why}", "idle, allocated or mixed", step)
