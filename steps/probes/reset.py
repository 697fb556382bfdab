"""Reads what a play of reset returned: what of RKE2 is left on each host."""

from collections.abc import Iterable

from steps.contract.play import HostOutcome
from steps.contract.stages.reset import HostFacts, HostObservation, Observation
from steps.probes import played


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """One observation for each host; facts that nobody can read are told as its message."""
    return Observation(nodes=tuple(played.told(outcome, HostObservation, HostFacts) for outcome in outcomes))
