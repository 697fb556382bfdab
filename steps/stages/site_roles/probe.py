"""Turns the outcome of a play with a site's own role into observations of hosts."""

from collections.abc import Iterable

from steps.contract.play import HostOutcome
from steps.stages.shared import probe_plays
from steps.stages.site_roles.contract import HostObservation, Observation, Ran


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """Return one observation for each host."""
    return Observation(nodes=tuple(probe_plays.told(outcome, HostObservation, Ran, "ran") for outcome in outcomes))
