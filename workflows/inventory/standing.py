"""Where machines stand, in an inventory: the variables that `writing` gives and `taking` reads. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from workflows.spec.machines import Machine

_FIELDS = {"rack": "bringup_rack", "leaf": "bringup_leaf", "scalable_unit": "bringup_scalable_unit"}
"""Fields of a machine → variables of a host."""
_LONGEST = 63
"""Characters of a name: more is none."""


def of_host(machine: Machine) -> dict[str, Any]:
    """What one host has for itself; empty where a spec says nothing."""
    return {name: getattr(machine, field) for field, name in _FIELDS.items()}


def told(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], group: dict[str, Any]) -> None:
    """Say in a group where its machines stand, as far as variables tell: once where all stand in one place, else one by one."""
    for field, name in _FIELDS.items():
        places = {host: place for host in members if (place := _place(hosts[host].get(name)))}
        every = set(places.values())
        if len(places) == len(members) and len(every) == 1 and not _is_pattern(*every):
            group.setdefault("topology", {})[field] = every.pop()
            continue
        for host, place in places.items():
            group.setdefault("overrides", {}).setdefault(host, {})[field] = place


def _place(value: Any) -> str:
    """A plain name; an INI file has a number where a name has digits alone."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if len(text) <= _LONGEST and text.isprintable() and "{{" not in text and "{%" not in text else ""


def _is_pattern(place: str) -> bool:
    """Whether a topology would take it for a pattern."""
    return "{" in place or "}" in place
