"""Turns the outcome of a play with a site's own role into observations of hosts."""

from collections.abc import Iterable

from steps.contract.host_play import HostOutcome
from steps.stages.shared import probe_plays
from steps.stages.site_roles.contract import Ran, RoleHost, RoleObservation


def from_play(outcomes: Iterable[HostOutcome]) -> RoleObservation:
    """Return one observation for each host of the play: how it ended there, and the role that the host reports to have run."""
    return RoleObservation(nodes=tuple(probe_plays.host_with_facts(outcome, RoleHost, Ran, "ran") for outcome in outcomes))
