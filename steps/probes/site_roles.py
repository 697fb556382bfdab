"""Reads what a play of a site's own role returned: whether each host came to its end."""

from collections.abc import Iterable

from steps.contract.play import HostOutcome
from steps.contract.site_roles import HostObservation, Observation, Ran
from steps.probes import played


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """One observation for each host."""
    return Observation(nodes=tuple(played.told(outcome, HostObservation, Ran, "ran") for outcome in outcomes))
