"""Clears the queue: jobs of acceptances that were killed, and those of this run when a task ends."""

from typing import Final

from steps import timeouts
from steps.clients import slurm_tools
from steps.runtime.context import Context
from steps.slurmacceptance import slurm_output

REASON: Final = "bringup accept"
"""Beginning of the reason of a node that an acceptance has drained."""


def clear(context: Context, *, resume: bool = False) -> None:
    """Cancel this user's jobs of earlier attempts of this run, and of runs whose process is gone.

    With `resume`, nodes that a killed acceptance has left drained are resumed: the user allows drains.
    """
    own = context.environment.run
    jobs = tuple(job.id for job in slurm_tools.queued() or () if job.run == own or not job.alive)
    if jobs:
        slurm_tools.cancel(jobs)
        context.did(f"cancelled {len(jobs)} jobs of interrupted acceptances")
    if resume:
        for node in slurm_output.nodes(slurm_tools.ask("scontrol", "--oneliner", "show", "node").out):
            if node.reason.startswith(REASON):
                slurm_tools.ask("scontrol", "update", f"NodeName={node.name}", "State=RESUME")
                context.did(f"resumed {node.name}, which an interrupted acceptance had drained")


def finish(context: Context) -> tuple[str, ...] | None:
    """Cancel this run's jobs and return the ids of those that stay in the queue nevertheless; None if it cannot be read."""
    own, clock = context.environment.run, context.clock
    deadline = clock.now() + timeouts.SLURM_STATE
    cancelled = False
    while True:
        queue = slurm_tools.queued()
        if queue is None:
            return None
        jobs = tuple(job.id for job in queue if job.run == own)
        if not jobs or clock.now() >= deadline:
            return jobs
        if not cancelled:
            slurm_tools.cancel(jobs)
            cancelled = True
        clock.pause(timeouts.SLURM_POLL, deadline)
