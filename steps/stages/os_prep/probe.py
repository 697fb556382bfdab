"""Turns the outcome of an os_prep play into the observation of its gate; `playbooks/library/node_profile.py` does the reading."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.host_play import HostOutcome
from steps.stages.os_prep.contract import Facts, Item, NodeObservation, NodesObservation
from steps.stages.shared import probe_plays


class _Shown(Struct, frozen=True, kw_only=True):
    """Answer of the Ansible module node_profile: host settings and facts, under its key `observation`."""

    items: tuple[Item, ...]
    facts: Facts


def from_play(outcomes: Iterable[HostOutcome]) -> NodesObservation:
    """Return one observation for each host of an os_prep play; for unreadable facts, the reason becomes the host's `message`."""
    return NodesObservation(nodes=tuple(_node(outcome) for outcome in outcomes))


def _node(outcome: HostOutcome) -> NodeObservation:
    seen = probe_plays.host_without_facts(outcome, NodeObservation)
    shown, why = probe_plays.decode_facts(outcome.facts, _Shown)
    if shown is None:
        return msgspec.structs.replace(seen, message=seen.message or why)
    return msgspec.structs.replace(seen, items=shown.items, facts=shown.facts, skew_seconds=_skew(shown.facts, outcome))


def _skew(facts: Facts, outcome: HostOutcome) -> float | None:
    """Return the least certain difference between the node's clock and the controller's, in seconds; None if unknown.

    The node read its clock between two readings of the controller, and at least `after_seconds` after the first. Only a time
    outside that interval is certainly a difference.
    """
    if not outcome.facts_from or not outcome.facts_to:
        return None
    # a slow module must not look like a slow clock
    node_time, earliest = facts.clock.epoch, min(outcome.facts_from + facts.clock.after_seconds, outcome.facts_to)
    return max(0.0, node_time - outcome.facts_to) - max(0.0, earliest - node_time)
