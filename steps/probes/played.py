"""What a play says of a host before a stage's own facts; facts that nobody can read are told as such."""

from typing import Any, TypeVar

import msgspec

from steps.contract.play import HostOutcome, Played

Seen = TypeVar("Seen", bound=Played)
Shown = TypeVar("Shown")


def bare(outcome: HostOutcome, kind: type[Seen]) -> Seen:
    """The observation without any facts."""
    return kind(
        node=outcome.host,
        outcome=outcome.status,
        kind=outcome.kind,
        task=outcome.task,
        message=outcome.message,
        changed=outcome.changed,
    )


def told(outcome: HostOutcome, kind: type[Seen], facts: type[Any], field: str = "facts") -> Seen:
    """The observation with the stage's own facts in `field`; why they cannot be read is its message, where the play left none."""
    seen = bare(outcome, kind)
    found, why = shown(outcome.facts, facts)
    return msgspec.structs.replace(seen, message=seen.message or why, **{field: found})


def shown(facts: dict[str, Any], kind: type[Shown]) -> tuple[Shown | None, str]:
    """The facts a module of ours returned and why they cannot be read; (None, "") where it returned none."""
    if not facts:
        return None, ""
    try:
        return msgspec.convert(facts, kind), ""
    except msgspec.ValidationError as error:
        return None, f"its observation cannot be read: {error}"
