"""Fill references in Helm values and objects of the catalog from a spec, and merge layers of values.

- `${path}`: the value at a dotted path of the scope (see `scope`). A text that is a single reference keeps the type of the value
  (`${accelerator.per_node}` → 8); inside a longer text it is printed. A path without a value is an error.
- `{$each: path, $key: K, $value: V}`: a map with one entry for each item of the list at `path`; `${item.…}` refers to that item.
  Without `$key` the result is a list.
- `{$when: CRITERIA, …}`: a map that is left out, with its key, unless the criteria match the spec. With `$value` inside, that
  value replaces the map.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workflows.catalog import slurm_values
from workflows.catalog.criteria import Facts, matches, multus_owner
from workflows.spec import ClusterSpec
from workflows.spec.cluster_spec import (
    GPU,
    gpu_groups,
    keeping_taints,
    own_taints,
    product_label,
)
from workflows.spec.gpu_pools import PoolFlavor, mig_strategy, plugin_configs, quota_flavors, uniform
from workflows.spec.sections.platform import Fabric, TenantQueue

_MELLANOX = "15b3"
"""PCI vendor id of NVIDIA's NICs."""


def scope(spec: ClusterSpec) -> Mapping[str, Any]:
    """Return the data that `${path}` references read: the spec's sections, and under `derived` the values computed from them.

    Hosts, SSH, secrets, approvals and overrides are left out, so a chart cannot depend on them.
    """
    spec = uniform(spec)
    written = spec.model_dump(mode="python", exclude={"hosts", "ssh", "secrets", "approvals", "overrides"})
    return {**written, "derived": _derived(spec)}


def _derived(spec: ClusterSpec) -> dict[str, Any]:
    flavors = quota_flavors(spec) if spec.scheduler.quota != "none" else ()
    covered = spec.scheduler.flavor.covered_resources or covered_resources(flavors)
    return {
        "multus": multus_owner(spec),
        "registration_address": spec.registration_address,
        "product_label": product_label(spec),
        "gpu_nodes": len(spec.gpu_machines),
        "resource_key": spec.fabric.resource_key,
        "flavors": [_flavor(flavor) for flavor in flavors],
        "covered_resources": list(covered),
        "plugin_configs": plugin_configs(spec),
        "mig_strategy": mig_strategy(spec),
        "queues": [_queue(queue, flavors, covered) for queue in spec.scheduler.queues],
        "daemon_tolerations": _daemon_tolerations(spec),
        **slurm_values.derived(spec),
        **_fabric(spec.fabric),
    }


def _fabric(fabric: Fabric) -> dict[str, Any]:
    """Return the derived values for network objects. Device plugin configurations are JSON text, as NicClusterPolicy requires."""
    ids, names = list(fabric.device_ids), list(fabric.interfaces)
    # each device plugin has words of its own for the same selectors, and ignores those that it does not know
    shared = {"vendors": [_MELLANOX], "deviceIDs": ids, **({"ifNames": names} if names else {})}
    whole = {"vendors": [_MELLANOX], "devices": ids, "isRdma": True, **({"pfNames": names} if names else {})}
    named = {"resourceName": fabric.resource_name}
    pool = fabric.ip_pool
    gateway = {"gateway": pool.gateway} if pool and pool.gateway else {}
    return {
        "rdma_shared_config": _json({"configList": [{**named, "rdmaHcaMax": 63, "selectors": shared}]}),
        "host_device_config": _json({"resourceList": [{**named, "resourcePrefix": "nvidia.com", "selectors": whole}]}),
        "ip_pool": {"subnet": pool.subnet, "perNodeBlockSize": pool.per_node_block, **gateway} if pool else None,
        "ipam": _json({"type": "nv-ipam", "poolName": "fabric"}),
        "master": fabric.interfaces[0] if fabric.interfaces else None,
        "mtu": fabric.mtu or 0,
        "sriov_policies": list(_sriov_policies(fabric)),
        "link_type": "IB" if fabric.kind == "infiniband" else "ETH",
    }


def _sriov_policies(fabric: Fabric) -> Iterator[dict[str, Any]]:
    """Yield name and NIC selector of each SriovNetworkNodePolicy: one for each device id, since a selector holds one id."""
    names = {"pfNames": list(fabric.interfaces)} if fabric.interfaces else {}
    for index, device in enumerate(dict.fromkeys(fabric.device_ids)):
        name = f"fabric-{device}" if index else "fabric"
        yield {"name": name, "selector": {"vendor": _MELLANOX, "deviceID": device, **names}}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def covered_resources(flavors: Iterable[PoolFlavor]) -> tuple[str, ...]:
    """Return the resources that the nodes of flavors advertise, each once; GPUs if they advertise none, as with DRA."""
    return tuple(dict.fromkeys(name for flavor in flavors for name in flavor.resources)) or (GPU,)


def _flavor(flavor: PoolFlavor) -> dict[str, Any]:
    tolerations = {"tolerations": [slurm_values.toleration(taint) for taint in flavor.taints]} if flavor.taints else {}
    return {"name": flavor.name, "spec": {"nodeLabels": dict(flavor.labels), **tolerations}}


def _queue(queue: TenantQueue, flavors: Iterable[PoolFlavor], covered: tuple[str, ...]) -> dict[str, Any]:
    """Return a tenant's queue. Kueue takes only queues that have a quota on every covered resource in each flavor."""
    limit = {} if queue.borrowing_limit is None else {"borrowingLimit": queue.borrowing_limit}
    quotas = [
        {
            "name": flavor.name,
            "resources": [{"name": name, "nominalQuota": flavor.quota(queue, name), **limit} for name in covered],
        }
        for flavor in flavors
    ]
    return {"name": queue.name, "namespace": queue.namespace, "cohort": queue.cohort or queue.name, "flavors": quotas}


def _daemon_tolerations(spec: ClusterSpec) -> list[dict[str, str]]:
    """Return the tolerations of DaemonSets on GPU nodes: that of the charts, and those for the taints of the spec and of SUNK."""
    usual = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    lock = [slurm_values.toleration(f"{key}:NoExecute") for key in own_taints(spec)]
    return [usual, *lock, *(slurm_values.toleration(taint) for taint in keeping_taints(spec, gpu_groups(spec)))]


_REFERENCE = re.compile(r"\$\{([a-z0-9_.]+)\}")


class BadReference(ValueError):
    """Exception: a `${path}` in catalog data names something that the spec does not have; the message holds the path."""


class _Absent:
    """Type of the marker value for a part that `$when` leaves out."""


_ABSENT = _Absent()


def fill(value: Any, scope: Mapping[str, Any], facts: Facts) -> Any:
    """Return `value` with every reference, `$each` and `$when` replaced; None if a `$when` leaves out the whole value.

    Raises:
        BadReference: a path has no value; the message names the path.
    """
    filled = _fill(value, scope, facts)
    return None if filled is _ABSENT else filled


def _fill(value: Any, scope: Mapping[str, Any], facts: Facts) -> Any:
    if isinstance(value, Mapping):
        return _fill_map(value, scope, facts)
    if isinstance(value, list | tuple):
        return [part for part in (_fill(inner, scope, facts) for inner in value) if part is not _ABSENT]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return look_up(whole[1], scope)

    def printed(match: re.Match[str]) -> str:
        referred = look_up(match[1], scope)
        return ("true" if referred else "false") if isinstance(referred, bool) else str(referred)

    return _REFERENCE.sub(printed, value)


def _fill_map(value: Mapping[str, Any], scope: Mapping[str, Any], facts: Facts) -> Any:
    if "$when" in value and not matches(_criteria(value["$when"]), facts):
        return _ABSENT
    if "$each" in value:
        return _each(value, scope, facts)
    if "$value" in value:
        return _fill(value["$value"], scope, facts)
    pairs = ((_fill(key, scope, facts), _fill(inner, scope, facts)) for key, inner in value.items() if key != "$when")
    return {key: inner for key, inner in pairs if inner is not _ABSENT}


def _criteria(written: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {dimension: tuple(accepted) if isinstance(accepted, list) else (accepted,) for dimension, accepted in written.items()}


def _each(value: Mapping[str, Any], scope: Mapping[str, Any], facts: Facts) -> Any:
    inner = [{**scope, "item": item} for item in look_up(value["$each"], scope)]
    if "$key" not in value:
        return [_fill(value["$value"], inner_scope, facts) for inner_scope in inner]
    return {_fill(value["$key"], inner_scope, facts): _fill(value["$value"], inner_scope, facts) for inner_scope in inner}


def look_up(path: str, scope: Mapping[str, Any]) -> Any:
    """Return the value at a dotted path of the scope. Raises BadReference if the path does not exist or its value is null."""
    here: Any = scope
    for part in path.split("."):
        if not isinstance(here, Mapping) or part not in here:
            raise BadReference(f"${{{path}}} names nothing that a spec has")
        here = here[part]
    if here is None:
        raise BadReference(f"${{{path}}} is not set in this spec")
    return here


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return `upper` merged over `lower` by Helm's rule: maps merge, lists and scalars replace; neither argument is changed.

    A null in `upper` is kept in the result, because it tells Helm to remove the chart's default.
    """
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every value that is no map with entries, such as `driver.enabled`; `prefix` starts each path."""
    for key, value in values.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path
