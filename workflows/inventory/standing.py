"""Where machines stand, in an inventory: the variables that `writing` gives and `taking` reads. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from workflows.spec.machines import Machine

_FIELDS = {"rack": "bringup_rack", "leaf": "bringup_leaf", "scalable_unit": "bringup_scalable_unit"}
"""Fields of a machine → variables of a host."""


def of_host(machine: Machine) -> dict[str, Any]:
    """What one host has for itself; empty where a spec says nothing."""
    return {name: getattr(machine, field) for field, name in _FIELDS.items()}


def told(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], group: dict[str, Any]) -> list[str]:
    """Say in a group where its machines stand, as far as variables tell: once where all stand in one place, else one by one. What
    could not be taken over, a line each."""
    notes = []
    for field, name in _FIELDS.items():
        said = {host: hosts[host][name] for host in members if hosts[host].get(name) not in (None, "")}
        places = {host: place for host, value in said.items() if (place := _place(value))}
        notes += [
            f"{name} of {host} is {_shown(value)}no name of a place, and was left out"
            for host, value in said.items()
            if host not in places
        ]
        every = set(places.values())
        if len(places) == len(members) and len(every) == 1 and not _is_pattern(*every):
            group.setdefault("topology", {})[field] = every.pop()
            continue
        for host, place in places.items():
            group.setdefault("overrides", {}).setdefault(host, {})[field] = place
    return notes


def _place(value: Any) -> str:
    """A plain name; an INI file has a number where a name has digits alone. One with a dot has lost what it ended with (1.10)."""
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if text.isprintable() and "{{" not in text and "{%" not in text else ""


def _shown(value: Any) -> str:
    """A number as it was read; whatever else may hold what nobody is to see."""
    return f"{value!r}, " if isinstance(value, int | float) else ""


def _is_pattern(place: str) -> bool:
    """Whether a topology would take it for a pattern."""
    return "{" in place or "}" in place
