"""Inventory variables about rack, leaf and scalable unit, written by `inventory_export` and read by `spec_conversion`."""

from collections.abc import Mapping, Sequence
from typing import Any

from workflows.spec.machines import Machine

_FIELDS = {"rack": "bringup_rack", "leaf": "bringup_leaf", "scalable_unit": "bringup_scalable_unit"}
"""Fields of a machine → variables of a host."""


def topology_variables_of(machine: Machine) -> dict[str, Any]:
    """Return the topology variables of one host; empty texts if the spec has no topology."""
    return {name: getattr(machine, field) for field, name in _FIELDS.items()}


def set_topology(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], group: dict[str, Any]) -> list[str]:
    """Set topology or overrides of a group from the variables of its hosts, and return a note for each value that was left out.

    The topology is set once if all hosts share it, else host by host.
    """
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
    """Return a value as a name, empty if it is none. Numbers are accepted, since an INI file reads names of digits as numbers.

    Fractions are refused: 1.10 has lost its last digit.
    """
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if text.isprintable() and "{{" not in text and "{%" not in text else ""


def _shown(value: Any) -> str:
    """Return a number for a note. Other values are not repeated, since they may hold secrets."""
    return f"{value!r}, " if isinstance(value, int | float) else ""


def _is_pattern(place: str) -> bool:
    """Return True if a topology would read the name as a pattern."""
    return "{" in place or "}" in place
