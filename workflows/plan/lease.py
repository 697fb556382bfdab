"""The duration of a run's lease on the target: its longest time without a write, waits for people included, and a margin."""

from collections.abc import Iterable

from steps.contract.run import LEASE_SECONDS
from steps.contract.task import Verb
from workflows.stages.stage import Stage

_MAYBE = (Verb.JOB, Verb.PLAY)
"""Verbs that renew the lease only if they have work: a check of too few nodes, or a play on no host, ends at once."""


def seconds(stages: Iterable[Stage]) -> int:
    """Return the longest time in seconds between two certain renewals, by deadlines and approvals, plus `LEASE_SECONDS`."""
    longest = waited = 0
    for stage in stages:
        waited += stage.approval.timeout_seconds if stage.approval is not None else 0
        for step in stage.steps:
            longest = max(longest, waited)
            deadline, verb = step.task.deadline_seconds, step.task.verb
            # apply renews for sure; a job or play either renews or ends at once; other verbs never renew
            if verb is Verb.APPLY:
                waited = deadline
            else:
                waited = max(waited, deadline) if verb in _MAYBE else waited + deadline
    return max(longest, waited) + LEASE_SECONDS
