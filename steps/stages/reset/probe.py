"""Turns the outcome of a reset play into the traces of RKE2 on each host."""

from collections.abc import Iterable

from steps.contract.host_play import HostOutcome
from steps.stages.reset.contract import HostTraces, ResetHost, ResetObservation
from steps.stages.shared import probe_plays


def from_play(outcomes: Iterable[HostOutcome]) -> ResetObservation:
    """Return one observation for each host of a reset play; if a host's facts cannot be read, the reason becomes its `message`."""
    return ResetObservation(nodes=tuple(probe_plays.host_with_facts(outcome, ResetHost, HostTraces) for outcome in outcomes))
