"""Inventory variables about GPUs and topology, written by `inventory_export` and read by `spec_conversion`."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.machines import Machine
from workflows.spec.sections.gpus import Accelerator

MARK, COUNT = "bringup_gpu", "bringup_gpus"
"""Host variables: true for a host with the accelerator, and its number of GPUs if that differs from other hosts'."""
_FIELDS = {
    "product": "bringup_gpu_product",
    "per_node": "bringup_gpus_per_node",
    "product_label": "bringup_gpu_product_label",
    "driver": "bringup_gpu_driver",
    "driver_version": "bringup_gpu_driver_version",
    "operator_mode": "bringup_gpu_operator_mode",
}
"""Field of the section `accelerator` → inventory variable of all hosts."""
MOST = 16
"""Largest number of GPUs that a host has in a spec."""
_YES = (True, "true", "True", "yes", 1)


def fleet_gpu_variables(spec: ClusterSpec) -> dict[str, Any]:
    """Return the inventory variables about GPUs that all hosts share; empty without an accelerator."""
    if spec.accelerator is None:
        return {}
    fields = spec.accelerator.model_dump(mode="json", exclude_defaults=True) | {"per_node": spec.accelerator.per_node}
    return {_FIELDS[field]: value for field, value in fields.items() if field in _FIELDS}


def host_gpu_variables(spec: ClusterSpec, machine: Machine) -> dict[str, Any]:
    """Return the inventory variables about the GPUs of one host; empty if it has none."""
    if not machine.gpu or spec.accelerator is None:
        return {}
    own = spec.hosts[machine.group].accelerator
    differences = own.model_dump(mode="json", exclude_none=True, exclude={"per_node"}) if own else {}
    count = {COUNT: machine.gpus} if machine.gpus != spec.accelerator.per_node else {}
    return {MARK: True} | count | {_FIELDS[field]: value for field, value in differences.items()}


def accelerator(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `accelerator` that the variables of a host describe; empty if they describe no valid one."""
    fields = {field: variables[name] for field, name in _FIELDS.items() if name in variables}
    if isinstance(fields.get("driver_version"), int | float):  # an INI file has numbers where a version has two parts
        fields["driver_version"] = str(fields["driver_version"])
    try:
        model = Accelerator.model_validate(fields)
    except ValidationError:
        return {}
    return fields | {"per_node": model.per_node}


def all_have_gpus(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if all machines of a group are marked as GPU machines."""
    return bool(members) and all(hosts[host].get(MARK) in _YES for host in members)


def gpu_override(variables: Mapping[str, Any], per_node: int) -> dict[str, Any]:
    """Return the override `{"gpus": N}` of a host whose number of GPUs differs from `per_node`, else an empty mapping."""
    count = variables.get(COUNT)
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST
    return {"gpus": count} if is_count and count != per_node else {}


def group_accelerator(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], general: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `accelerator` of a host group whose hosts all differ alike from the one of the spec; else empty."""
    every = [accelerator(hosts[host]) for host in members]
    different = {field: every[0].get(field) for field in ("product", "product_label") if every[0].get(field) != general.get(field)}
    counts = {hosts[host].get(COUNT) for host in members}
    if len(counts) == 1 and gpu_override(hosts[members[0]], general["per_node"]).get("gpus", 0):
        different["per_node"] = counts.pop()
    alike = all(part.get(field) == every[0].get(field) for part in every for field in ("product", "product_label"))
    return {field: value for field, value in different.items() if value is not None} if alike else {}


_TOPOLOGY_FIELDS = {"rack": "bringup_rack", "leaf": "bringup_leaf", "scalable_unit": "bringup_scalable_unit"}
"""Topology field of a machine → inventory variable of a host."""


def topology_variables_of(machine: Machine) -> dict[str, Any]:
    """Return the topology variables of one host; their values are empty texts if the spec has no topology."""
    return {name: getattr(machine, field) for field, name in _TOPOLOGY_FIELDS.items()}


def set_topology(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], group: dict[str, Any]) -> list[str]:
    """Set rack, leaf and scalable unit in `group` from the variables of its hosts; return a note for each value left out.

    A value is set once for the group if all hosts share it, else host by host.
    """
    notes = []
    for field, name in _TOPOLOGY_FIELDS.items():
        values = {host: hosts[host][name] for host in members if hosts[host].get(name) not in (None, "")}
        places = {host: place for host, value in values.items() if (place := _place(value))}
        for host in (host for host in values if host not in places):
            # values other than numbers are not repeated, since they may hold secrets
            shown = f"{values[host]!r}, " if isinstance(values[host], int | float) else ""
            notes.append(f"{name} of {host} is {shown}no name of a place, and was left out")
        every = set(places.values())
        # a topology would read a name with braces as a pattern
        if len(places) == len(members) and len(every) == 1 and not set("{}") & set(*every):
            group.setdefault("topology", {})[field] = every.pop()
            continue
        for host, place in places.items():
            group.setdefault("overrides", {}).setdefault(host, {})[field] = place
    return notes


def _place(value: Any) -> str:
    """Return the value of a topology variable as text, empty if it is no name of a place.

    Numbers are accepted, since an INI file reads names of digits as numbers. Fractions are refused: 1.10 has lost its last digit.
    """
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if text.isprintable() and "{{" not in text and "{%" not in text else ""
