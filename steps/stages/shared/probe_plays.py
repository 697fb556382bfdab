"""Turns the outcome of a play on a host into a stage's observation."""

from typing import Any, TypeVar

import msgspec

from steps.contract.host_play import HostOutcome, Played

Seen = TypeVar("Seen", bound=Played)
Shown = TypeVar("Shown")


def host_without_facts(outcome: HostOutcome, kind: type[Seen]) -> Seen:
    """Return the observation of a host without facts."""
    return kind(
        node=outcome.host,
        outcome=outcome.status,
        kind=outcome.kind,
        task=outcome.task,
        message=outcome.message,
        changed=outcome.changed,
    )


def host_with_facts(outcome: HostOutcome, kind: type[Seen], facts: type[Any], field: str = "facts") -> Seen:
    """Return the observation of a host with the stage's facts in `field`.

    If the facts cannot be read, the reason becomes the message, unless the play left one.
    """
    seen = host_without_facts(outcome, kind)
    found, why = decode_facts(outcome.facts, facts)
    return msgspec.structs.replace(seen, message=seen.message or why, **{field: found})


def decode_facts(facts: dict[str, Any], kind: type[Shown]) -> tuple[Shown | None, str]:
    """Decode the facts that one of our Ansible modules returned. Return (facts, ""), (None, reason) on an error, (None, "") if
    there are none.
    """
    if not facts:
        return None, ""
    try:
        return msgspec.convert(facts, kind), ""
    except msgspec.ValidationError as error:
        return None, f"its observation cannot be read: {error}"
