"""What a play of os_prep showed → the observation of its gate. The reading itself is `playbooks/library/node_profile.py`."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.play import HostOutcome
from steps.contract.stages.os_prep import Facts, Item, NodeObservation, Observation
from steps.probes import played


class Shown(Struct, frozen=True, kw_only=True):
    """The `observation` that node_profile returns."""

    items: tuple[Item, ...]
    facts: Facts


def from_play(outcomes: Iterable[HostOutcome]) -> Observation:
    """One node observation for each host; what a node says and nobody can read is told as its message."""
    return Observation(nodes=tuple(_node(outcome) for outcome in outcomes))


def _node(outcome: HostOutcome) -> NodeObservation:
    seen = played.bare(outcome, NodeObservation)
    shown, why = played.shown(outcome.facts, Shown)
    if shown is None:
        return msgspec.structs.replace(seen, message=seen.message or why)
    return msgspec.structs.replace(seen, items=shown.items, facts=shown.facts, skew_seconds=_skew(shown.facts, outcome))


def _skew(facts: Facts, outcome: HostOutcome) -> float | None:
    """The node read its clock between two readings of ours, and so long after it had begun as it says: only what lies outside of
    that is certainly a difference."""
    if not outcome.facts_from or not outcome.facts_to:
        return None
    now, earliest = facts.clock.epoch, min(outcome.facts_from + facts.clock.after_seconds, outcome.facts_to)
    return max(0.0, now - outcome.facts_to) - max(0.0, earliest - now)
