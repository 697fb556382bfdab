"""Decides if a node of Slurm takes jobs, from the words of its state."""

from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.slurm_states import takes_jobs


def state(states: tuple[str, ...], reason: str = "", *, powered_down: bool = False) -> Finding | None:
    """Return the finding that says why a node in these states takes no jobs; None if it takes them. `reason` is Slurm's own reason.

    `powered_down`: a sleeping node counts as usable.
    """
    if not states:
        step = "check that its slurmd reached slurmctld"
        return unknown(FailureClass.HEALTH, "Slurm tells no state of the node", "a state", step)
    if takes_jobs(states, powered_down=powered_down):
        return None
    why = f" ({reason})" if reason else ""
    resume = "remove the cause, then `scontrol update nodename=NODE state=resume`"
    step = resume if reason else "read slurmd's log on the node"
    return fail(FailureClass.HEALTH, f"Slurm state {'+'.join(states)}{why}", "idle, allocated or mixed", step)
