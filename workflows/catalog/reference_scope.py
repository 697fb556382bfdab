"""The scope of references in catalog data: the spec as written, and facts computed from it under `derived`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workflows.catalog.criteria import multus_owner
from workflows.spec import ClusterSpec
from workflows.spec.derived import GPU, GROUP_LABEL, PRODUCT_LABEL, advertised, product_label, slurm_groups
from workflows.spec.platform import Fabric, TenantQueue

_MELLANOX = "15b3"
"""PCI vendor id of NVIDIA's NICs."""


def scope(spec: ClusterSpec) -> Mapping[str, Any]:
    """Return the scope of references. Hosts are left out: they belong to the fleet, not to a chart."""
    written = spec.model_dump(mode="python", exclude={"hosts", "ssh", "secrets", "approvals", "overrides"})
    return {**written, "derived": _derived(spec)}


def _derived(spec: ClusterSpec) -> dict[str, Any]:
    resources = advertised(spec)
    flavor = spec.scheduler.flavor
    covered = flavor.covered_resources or resources or (GPU,)
    return {
        "multus": multus_owner(spec),
        "registration_address": spec.registration_address,
        "product_label": product_label(spec),
        "gpu_nodes": len(spec.gpu_machines),
        "resource_key": spec.fabric.resource_key,
        "flavor_labels": dict(flavor.node_labels) if flavor.node_labels is not None else {PRODUCT_LABEL: product_label(spec)},
        "covered_resources": list(covered),
        "queues": [_queue(queue, covered) for queue in spec.scheduler.queues],
        "slurm_groups": [_slurm_group(spec, name, resources) for name in slurm_groups(spec)],
        "slurm_partitions": _slurm_partitions(spec),
        "authorized_keys": "\n".join(spec.slurm.login.authorized_keys),
        **_fabric(spec.fabric),
    }


def _fabric(fabric: Fabric) -> dict[str, Any]:
    """Return the values that network objects need. Configurations of device plugins are JSON text, as NicClusterPolicy requires."""
    selectors: dict[str, Any] = {"vendors": [_MELLANOX], "deviceIDs": list(fabric.device_ids)}
    shared = {**selectors, "ifNames": list(fabric.interfaces)} if fabric.interfaces else selectors
    named = {"resourceName": fabric.resource_name}
    whole = {**named, "resourcePrefix": "nvidia.com", "selectors": {**selectors, "isRdma": True}}
    pool = fabric.ip_pool
    gateway = {"gateway": pool.gateway} if pool and pool.gateway else {}
    return {
        "rdma_shared_config": _json({"configList": [{**named, "rdmaHcaMax": 63, "selectors": shared}]}),
        "host_device_config": _json({"resourceList": [whole]}),
        "ip_pool": {"subnet": pool.subnet, "perNodeBlockSize": pool.per_node_block, **gateway} if pool else None,
        "ipam": _json({"type": "nv-ipam", "poolName": "fabric"}),
        "master": fabric.interfaces[0] if fabric.interfaces else None,
        "mtu": fabric.mtu or 0,
        "first_device_id": fabric.device_ids[0],
        "link_type": "IB" if fabric.kind == "infiniband" else "ETH",
    }


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _queue(queue: TenantQueue, covered: tuple[str, ...]) -> dict[str, Any]:
    limit = {} if queue.borrowing_limit is None else {"borrowingLimit": queue.borrowing_limit}
    resources = [{"name": name, "nominalQuota": queue.gpus, **limit} for name in covered]
    return {"name": queue.name, "namespace": queue.namespace, "cohort": queue.cohort or queue.name, "resources": resources}


def _slurm_group(spec: ClusterSpec, name: str, resources: tuple[str, ...]) -> dict[str, Any]:
    group, label = spec.hosts[name], name.replace("_", "-")
    gpu = spec.accelerator if group.gpu else None
    limits: dict[str, Any] = {resources[0]: gpu.per_node} if gpu and resources else {}
    if gpu and spec.fabric.kind != "none":
        limits[spec.fabric.resource_key] = (
            1 if spec.fabric.mode in ("rdma_shared", "ipoib", "macvlan") else spec.fabric.nics_per_node
        )
    gres = f"gpu:{gpu.product.lower().replace('-', '_')}:{gpu.per_node}" if gpu else ""
    return {
        "name": label,
        "size": len(group.names()),
        "selector": {GROUP_LABEL: label},
        "limits": limits,
        "conf": {"Gres": [gres]} if gres else {},
        "gres": gres,
        "tolerations": [_toleration(taint) for taint in group.taints],
    }


def _toleration(taint: str) -> dict[str, str]:
    left, effect = taint.rsplit(":", 1)
    key, _, value = left.partition("=")
    match = {"operator": "Equal", "value": value} if value else {"operator": "Exists"}
    return {"key": key, "effect": effect, **match}


def _slurm_partitions(spec: ClusterSpec) -> list[dict[str, Any]]:
    written = [
        {
            "name": partition.name,
            "nodesets": [group.replace("_", "-") for group in partition.groups],
            "default": "YES" if partition.default else "NO",
            "max_time": partition.max_time,
        }
        for partition in spec.slurm.partitions
    ]
    return written or [{"name": "all", "nodesets": ["ALL"], "default": "YES", "max_time": "UNLIMITED"}]
