"""GPUs in an inventory: the variables that say which machines have which, as `writing` gives them and `taking` reads them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from workflows.spec.cluster import ClusterSpec
from workflows.spec.machines import Machine
from workflows.spec.platform import Accelerator

MARK, COUNT = "bringup_gpu", "bringup_gpus"
"""Variables of a host: whether it has the accelerator, and how many GPUs where these are not as many as elsewhere."""
_FIELDS = {
    "product": "bringup_gpu_product",
    "per_node": "bringup_gpus_per_node",
    "product_label": "bringup_gpu_product_label",
    "driver": "bringup_gpu_driver",
    "driver_version": "bringup_gpu_driver_version",
    "operator_mode": "bringup_gpu_operator_mode",
}
"""Fields of `accelerator` → variables of all hosts."""
MOST = 16
"""GPUs that a host of a spec may have."""
_YES = (True, "true", "True", "yes", 1)


def of_all(spec: ClusterSpec) -> dict[str, Any]:
    """What holds for all hosts; nothing without an accelerator."""
    if spec.accelerator is None:
        return {}
    said = spec.accelerator.model_dump(mode="json", exclude_defaults=True) | {"per_node": spec.accelerator.per_node}
    return {_FIELDS[field]: value for field, value in said.items() if field in _FIELDS}


def of_host(spec: ClusterSpec, machine: Machine) -> dict[str, Any]:
    """What one host has for itself."""
    if not machine.gpu or spec.accelerator is None:
        return {}
    return {MARK: True} | ({COUNT: machine.gpus} if machine.gpus != spec.accelerator.per_node else {})


def accelerator(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The spec's `accelerator` as a host's variables say it; nothing where they name none that there is."""
    said = {field: variables[name] for field, name in _FIELDS.items() if name in variables}
    if isinstance(said.get("driver_version"), int | float):  # an INI file has numbers where a version has two parts
        said["driver_version"] = str(said["driver_version"])
    try:
        found = Accelerator.model_validate(said)
    except ValidationError:
        return {}
    return said | {"per_node": found.per_node}


def has_them(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all machines of a group are marked."""
    return bool(members) and all(hosts[host].get(MARK) in _YES for host in members)


def fewer(variables: Mapping[str, Any], per_node: int) -> dict[str, Any]:
    """How many GPUs a host has, where that is not what the others have."""
    count = variables.get(COUNT)
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST
    return {"gpus": count} if is_count and count != per_node else {}
