"""Reads what a play of a site's own role returned: whether each host came to its end."""

from collections.abc import Iterable

import msgspec

from steps.contract.play import HostOutcome
from steps.contract.site_roles import HostObservation, Observation, Ran
from steps.probes import played


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """One observation for each host."""
    return Observation(nodes=tuple(_host(outcome) for outcome in outcomes))


def _host(outcome: HostOutcome) -> HostObservation:
    seen = played.bare(outcome, HostObservation)
    ran, why = played.shown(outcome.facts, Ran)
    return msgspec.structs.replace(seen, ran=ran, message=seen.message or why)
