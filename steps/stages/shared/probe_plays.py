"""Turns the outcome of an Ansible play on a host into the observation type of a stage."""

from typing import Any, TypeVar

import msgspec

from steps.contract.host_play import HostOutcome, Played

Seen = TypeVar("Seen", bound=Played)
Shown = TypeVar("Shown")


def host_without_facts(outcome: HostOutcome, kind: type[Seen]) -> Seen:
    """Return how the play ended on a host as an observation of type `kind`; its facts keep their default."""
    return kind(
        node=outcome.host,
        outcome=outcome.status,
        kind=outcome.kind,
        task=outcome.task,
        message=outcome.message,
        changed=outcome.changed,
    )


def host_with_facts(outcome: HostOutcome, kind: type[Seen], facts: type[Any], field: str = "facts") -> Seen:
    """Return how the play ended on a host as an observation of type `kind`, with the host's facts in `field`.

    If the facts cannot be read, the reason becomes the message, unless the play left one.
    """
    seen = host_without_facts(outcome, kind)
    decoded, why = decode_facts(outcome.facts, facts)
    return msgspec.structs.replace(seen, message=seen.message or why, **{field: decoded})


def decode_facts(facts: dict[str, Any], kind: type[Shown]) -> tuple[Shown | None, str]:
    """Decode the facts that one of bringup's Ansible modules returned.

    Return (facts, ""), (None, reason) on an error, (None, "") if there are none.
    """
    if not facts:
        return None, ""
    try:
        return msgspec.convert(facts, kind), ""
    except msgspec.ValidationError as error:
        return None, f"its observation cannot be read: {error}"
