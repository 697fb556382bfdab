"""How long the target is reserved for a run: its longest time without a write, waits for people included, and a margin."""

from collections.abc import Iterable

from steps.contract.run import LEASE_SECONDS
from steps.contract.task import Verb
from workflows.stages.stage import Stage

_MAYBE = (Verb.JOB, Verb.PLAY)
"""Verbs that renew the lease only where there is something to do: a check of too few nodes, or a play on none, ends at once."""


def seconds(stages: Iterable[Stage]) -> int:
    """Seconds from one sure renewal to the next, as long as deadlines and approvals allow, and `LEASE_SECONDS` on top."""
    longest = waited = 0
    for stage in stages:
        waited += stage.approval.timeout_seconds if stage.approval is not None else 0
        for step in stage.steps:
            longest = max(longest, waited)
            deadline, verb = step.task.deadline_seconds, step.task.verb
            if verb is Verb.APPLY:
                waited = deadline
            else:
                waited = max(waited, deadline) if verb in _MAYBE else waited + deadline
    return max(longest, waited) + LEASE_SECONDS
