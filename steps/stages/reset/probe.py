"""Turns the outcome of a reset play into the traces of RKE2 on each host."""

from collections.abc import Iterable

from steps.contract.play import HostOutcome
from steps.stages.reset.contract import HostFacts, HostObservation, Observation
from steps.stages.shared import probe_plays


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """Return one observation for each host; unreadable facts become the host's message."""
    return Observation(nodes=tuple(probe_plays.told(outcome, HostObservation, HostFacts) for outcome in outcomes))
