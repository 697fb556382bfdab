"""Reads what a play of reset returned: what of RKE2 is left on each host."""

from collections.abc import Iterable

import msgspec

from steps.contract.play import HostOutcome
from steps.contract.stages.reset import HostFacts, HostObservation, Observation
from steps.probes import played


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """One observation for each host; facts that nobody can read are told as its message."""
    return Observation(nodes=tuple(_host(outcome) for outcome in outcomes))


def _host(outcome: HostOutcome) -> HostObservation:
    seen = played.bare(outcome, HostObservation)
    facts, why = played.shown(outcome.facts, HostFacts)
    return msgspec.structs.replace(seen, facts=facts, message=seen.message or why)
