"""Pools of GPU machines: the host groups that have the same product and the same sharing, each as a spec of its own.

Most specs have one pool. With several, the questions of `cluster_spec` about GPUs (what a node advertises, its labels, floors) have
an answer for each pool, and are asked with the pool's spec.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from steps.contract import fleet
from workflows.spec.cluster_spec import (
    GPU,
    PRODUCT_LABEL,
    ClusterSpec,
    advertised,
    ib_write_bw_floor,
    keeping_taints,
    node_labels,
    product_label,
    sharing_label,
)
from workflows.spec.parsing.document import value_at
from workflows.spec.sections.gpus import Accelerator, GpuSharing
from workflows.spec.sections.hosts import HostGroup
from workflows.spec.sections.platform import TenantQueue

PLUGIN_CONFIG, MIG_CONFIG = "nvidia.com/device-plugin.config", "nvidia.com/mig.config"
WHOLE = "whole"
"""Key of the device plugin's configuration without sharing, which holds for nodes without a label."""
OPERAND_LABELS: Mapping[str, tuple[str, ...]] = {
    "driver": ("driver",),
    "toolkit": ("container-toolkit",),
    "devicePlugin": ("device-plugin",),
    "gfd": ("gpu-feature-discovery",),
    "dcgm": ("dcgm", "dcgm-dra"),
    "migManager": ("mig-manager",),
    "dcgmExporter": ("dcgm-exporter", "dcgm-exporter-dra"),
    "nodeStatusExporter": ("node-status-exporter",),
}
"""Part of the GPU Operator in the chart's values → its names in node labels `nvidia.com/gpu.deploy.NAME`.

The second name is that with a GPUCluster. Source: controllers/state_manager.go of NVIDIA/gpu-operator.
"""
_OFF_BY_DEFAULT = ("dcgm", "nodeStatusExporter")
"""Parts that the chart does not run unless the values ask for them (deployments/gpu-operator/values.yaml of the chart)."""


@dataclass(frozen=True)
class GpuPool:
    """GPU machines with one product and one sharing.

    `groups` are their host groups. `spec` is the cluster's spec without other GPU groups, with the product and sharing of these in
    its sections. `key` names their configuration in the device plugin's ConfigMap. `labels` are the node labels that turn their
    sharing on, and those that keep the sharing of other pools off.
    """

    groups: tuple[str, ...]
    spec: ClusterSpec
    key: str = WHOLE
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the pool's first host group, which names its tasks."""
        return self.groups[0]

    @property
    def accelerator(self) -> Accelerator:
        """Return the section `accelerator` as it is for the machines of this pool."""
        if self.spec.accelerator is None:
            raise ValueError(f"pool {self.name} has no accelerator")
        return self.spec.accelerator

    @property
    def sharing(self) -> GpuSharing:
        """Return the section `sharing` as it is for the machines of this pool."""
        return self.spec.sharing

    @property
    def selector(self) -> str:
        """Return the selector that takes exactly the hosts of this pool."""
        return f"{fleet.GROUP}{','.join(self.groups)}"

    @property
    def shown(self) -> str:
        """Return the words for the pool in a sentence."""
        return f"group {self.name}" if len(self.groups) == 1 else f"groups {', '.join(self.groups)}"


def runs_operand(spec: ClusterSpec, values: Mapping[str, Any], part: str) -> bool:
    """Return True if the operator's values switch a part of it on, and the GPUs can have it: not all can be split by MIG."""
    if part == "migManager" and not any(pool.accelerator.facts.mig for pool in gpu_pools(spec)):
        return False
    enabled = value_at(values, f"{part}.enabled")
    return enabled is True or (enabled is not False and part not in _OFF_BY_DEFAULT)


def gpu_pools(spec: ClusterSpec) -> tuple[GpuPool, ...]:
    """Return the pools of a spec in the order of their first groups; empty without an accelerator or GPU groups."""
    groups = [name for name, group in spec.hosts.items() if group.gpu]
    if spec.accelerator is None or not groups:
        return ()
    if all(spec.hosts[name].accelerator is None and spec.hosts[name].sharing is None for name in groups):
        return (GpuPool(tuple(groups), spec, *_switches(spec, {}, False)),)
    members: dict[tuple[str, str], list[str]] = {}
    for name in groups:
        accelerator, sharing = _own(spec, name)
        members.setdefault((accelerator.model_dump_json(), sharing.model_dump_json()), []).append(name)
    specs = [(tuple(names), _narrowed(spec, names)) for names in members.values()]
    keys = _share_keys([narrowed.sharing for _, narrowed in specs])
    cuts = len(specs) > 1 and any(narrowed.sharing.mode == "mig" for _, narrowed in specs)
    return tuple(GpuPool(names, narrowed, *_switches(narrowed, keys if len(specs) > 1 else {}, cuts)) for names, narrowed in specs)


def uniform(spec: ClusterSpec) -> ClusterSpec:
    """Return the spec with the product and the sharing in which all its GPU groups agree in its sections; else unchanged."""
    pools, update = gpu_pools(spec), dict[str, object]()
    for section in ("accelerator", "sharing"):
        values = [getattr(pool.spec, section) for pool in pools]
        if values and all(value == values[0] for value in values) and values[0] != getattr(spec, section):
            update[section] = values[0]
    return spec.model_copy(update=update) if update else spec


def pool_of(spec: ClusterSpec, group: str) -> GpuPool | None:
    """Return the pool of a host group; None for a group without GPUs."""
    return next((pool for pool in gpu_pools(spec) if group in pool.groups), None)


def group_path(spec: ClusterSpec, pool: GpuPool, key: str) -> str:
    """Return the path of a key such as `sharing.profile` where it holds for a pool: in its first group if that has the section."""
    section = key.partition(".")[0]
    return f"hosts.{pool.name}.{key}" if getattr(spec.hosts[pool.name], section, None) is not None else key


def sharing_modes(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the sharing modes of all pools, each once; that of the section `sharing` for a spec without GPU groups."""
    return tuple(dict.fromkeys(pool.sharing.mode for pool in gpu_pools(spec))) or (spec.sharing.mode,)


def shares_by_mig(spec: ClusterSpec) -> bool:
    """Return True if GPUs are cut into MIG instances, which NCCL cannot join and DCGM's hardware tests do not take."""
    return spec.sharing.mode == "mig"


def joins_gpus(spec: ClusterSpec) -> bool:
    """Return True if NCCL's test inside nodes runs on the machines of one pool's spec: they have several whole GPUs."""
    return not shares_by_mig(spec) and spec.accelerator is not None and spec.accelerator.per_node > 1


def whole_pools(spec: ClusterSpec) -> tuple[tuple[GpuPool, ...], ...]:
    """Return the pools whose GPUs are not cut by MIG, those with one product and one number of GPUs together.

    NCCL's test between nodes runs within each of these sets: between different GPUs it would only measure the slower ones.
    """
    sets: dict[tuple[str, int], list[GpuPool]] = {}
    for pool in gpu_pools(spec):
        if not shares_by_mig(pool.spec):
            sets.setdefault((pool.accelerator.label, pool.accelerator.per_node), []).append(pool)
    return tuple(map(tuple, sets.values()))


def uses_dra(spec: ClusterSpec) -> bool:
    """Return True if GPUs are DRA devices."""
    return "dra" in sharing_modes(spec)


def mig_strategy(spec: ClusterSpec) -> str | None:
    """Return the MIG strategy of the pools that are cut into MIG instances; None without one."""
    return next((pool.sharing.strategy for pool in gpu_pools(spec) if pool.sharing.mode == "mig"), None)


def ports_floor(spec: ClusterSpec) -> float | None:
    """Return the ib_write_bw floor per port in Gbit/s: the lowest of all pools, since ports of different pools are measured too."""
    floors = [floor for pool in gpu_pools(spec) if (floor := ib_write_bw_floor(pool.spec)) is not None]
    return min(floors, default=None)


@dataclass(frozen=True)
class PoolFlavor:
    """A ResourceFlavor of Kueue: the GPUs of pools whose nodes carry the labels `labels`.

    `taints` keep pods away from these nodes. Jobs that the quota admits get tolerations for them.
    """

    name: str
    labels: Mapping[str, str]
    pools: tuple[GpuPool, ...]
    taints: tuple[str, ...] = ()

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that the nodes of this flavor advertise after sharing, each once; empty with DRA."""
        return tuple(dict.fromkeys(name for pool in self.pools for name in advertised(pool.spec)))

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the host groups of the flavor's nodes."""
        return tuple(group for pool in self.pools for group in pool.groups)

    def quota(self, queue: TenantQueue, resource: str) -> int:
        """Return a queue's nominal quota on a resource in this flavor: that of the groups which advertise the resource."""
        if queue.gpus_by_group is None:
            return queue.gpus or 0
        counted = (pool for pool in self.pools if _may_advertise(pool, resource))
        return sum(queue.gpus_by_group.get(group, 0) for pool in counted for group in pool.groups)


def quota_flavors(spec: ClusterSpec) -> tuple[PoolFlavor, ...]:
    """Return the flavors of Kueue's quotas: the one whose labels the spec names, else one for each product after sharing.

    Nodes of one product cannot be told apart by its label, so their pools are one flavor. The result is empty without GPU groups,
    and if the named labels select no pool, or nodes of several.
    """
    pools, flavor = gpu_pools(spec), spec.scheduler.flavor
    if flavor.node_labels is not None:
        chosen = [pool for pool in pools if any(_carries(pool, group, flavor.node_labels) for group in pool.groups)]
        if len(pools) == 1:
            chosen = list(pools)
        return (PoolFlavor(flavor.name, flavor.node_labels, (chosen[0],)),) if len(chosen) == 1 else ()
    products: dict[str, list[GpuPool]] = {}
    for pool in pools:
        products.setdefault(product_label(pool.spec), []).append(pool)
    if len(products) == 1:
        return (PoolFlavor(flavor.name, {PRODUCT_LABEL: product_label(pools[0].spec)}, pools),)
    names = _flavor_names(flavor.name, product_label(spec), products)
    return tuple(_product_flavor(spec, names[product], product, tuple(alike)) for product, alike in products.items())


def flavor_of(spec: ClusterSpec, pool: GpuPool) -> PoolFlavor | None:
    """Return the flavor that counts the GPUs of a pool; None if no quota counts them."""
    return next((flavor for flavor in quota_flavors(spec) if pool.groups[0] in flavor.groups), None)


def _flavor_names(general: str, main: str, products: Iterable[str]) -> dict[str, str]:
    """Return product label → name of its flavor: `general` for the label `main` of the spec's own sections, else the product's.

    Names follow the labels, so that a further group renames no flavor of a live cluster. Labels that differ only in letters which
    a name cannot have get a part of their digest.
    """
    words = {product: re.sub(r"[^a-z0-9]+", "-", product.lower().removeprefix("nvidia-")).strip("-") for product in products}
    uses = Counter(word for product, word in words.items() if product != main)
    digests = {product: f"-{hashlib.sha256(product.encode()).hexdigest()[:6]}" for product, word in words.items() if uses[word] > 1}
    return {
        product: general if product == main else f"{general}-{word}{digests.get(product, '')}" for product, word in words.items()
    }


def _product_flavor(spec: ClusterSpec, name: str, product: str, pools: tuple[GpuPool, ...]) -> PoolFlavor:
    """Return the flavor of one product of several."""
    # a Job asks for a resource and cannot know where it is admitted, so its flavor brings the tolerations
    taints = keeping_taints(spec, [group for pool in pools for group in pool.groups])
    return PoolFlavor(name, {PRODUCT_LABEL: product}, pools, taints)


def _may_advertise(pool: GpuPool, resource: str) -> bool:
    """Return False for a GPU resource that nodes of a pool do not advertise; the others, such as `cpu`, all nodes have."""
    names = advertised(pool.spec)
    return resource in names or not names or not resource.startswith("nvidia.com/")


def _carries(pool: GpuPool, group: str, labels: Mapping[str, str]) -> bool:
    """Return True if the nodes of a group carry all these labels, as far as a spec tells; other labels are taken to be there."""
    known = {**node_labels(pool.spec, group), PRODUCT_LABEL: product_label(pool.spec)}
    return all(known.get(key, value) == value for key, value in labels.items())


def plugin_configs(spec: ClusterSpec) -> dict[str, str]:
    """Return the content of the device plugin's ConfigMap: key → YAML text, for each sharing configuration and for whole GPUs."""
    shared = {pool.key: pool.sharing for pool in gpu_pools(spec) if pool.sharing.mode in ("time_slicing", "mps")}
    return {WHOLE: "version: v1", **{key: _config(sharing) for key, sharing in shared.items()}}


def _config(sharing: GpuSharing) -> str:
    part: dict[str, object] = {"renameByDefault": sharing.rename}
    if sharing.mode == "time_slicing":
        part["failRequestsGreaterThanOne"] = sharing.fail_requests_greater_than_one
    part["resources"] = [{"name": GPU, "replicas": sharing.replicas}]
    strategy = "timeSlicing" if sharing.mode == "time_slicing" else "mps"
    return yaml.safe_dump({"version": "v1", "sharing": {strategy: part}}, sort_keys=False).rstrip("\n")


def _own(spec: ClusterSpec, name: str) -> tuple[Accelerator, GpuSharing]:
    """Return product and sharing of a GPU group."""
    group = spec.hosts[name]
    if spec.accelerator is None:
        raise ValueError("the spec has no accelerator")
    accelerator = group.accelerator.merged(spec.accelerator) if group.accelerator else spec.accelerator
    return accelerator, group.sharing or spec.sharing


def _narrowed(spec: ClusterSpec, names: list[str]) -> ClusterSpec:
    """Return the spec without the GPU groups other than `names`, whose product and sharing become those of the whole spec."""
    accelerator, sharing = _own(spec, names[0])
    plain: dict[str, object] = {"accelerator": None, "sharing": None}
    hosts: dict[str, HostGroup] = {
        name: group.model_copy(update=plain) for name, group in spec.hosts.items() if name in names or not group.gpu
    }
    narrowed = spec.model_copy(update={"hosts": hosts, "accelerator": accelerator, "sharing": sharing})
    narrowed.__dict__["machines"] = tuple(machine for machine in spec.machines if machine.group in hosts)
    return narrowed


def _share_keys(sharings: list[GpuSharing]) -> dict[str, str]:
    """Return the key of each time-slicing or MPS configuration (as JSON): `shared` for a single one, else made of its settings."""
    shared = {sharing.model_dump_json(): sharing for sharing in sharings if sharing.mode in ("time_slicing", "mps")}
    if len(shared) == 1:
        return dict.fromkeys(shared, "shared")
    return {text: _share_key(sharing) for text, sharing in shared.items()}


def _share_key(sharing: GpuSharing) -> str:
    name = f"{sharing.mode.replace('_', '-')}-{sharing.replicas}"
    several = sharing.mode == "time_slicing" and not sharing.fail_requests_greater_than_one
    return f"{name}{'' if sharing.rename else '-as-gpus'}{'-several' if several else ''}"


def _switches(spec: ClusterSpec, keys: Mapping[str, str], cuts: bool) -> tuple[str, Mapping[str, str]]:
    """Return a pool's key in the device plugin's ConfigMap, and its node labels.

    `keys` are those of all pools; with several pools every node is labelled with its configuration, so that a machine that
    changes its group does not keep the one before. With `cuts` some pool has MIG instances.
    """
    label = sharing_label(spec)
    labels = dict([label]) if label else {}
    key = keys.get(spec.sharing.model_dump_json(), WHOLE) if keys else labels.get(PLUGIN_CONFIG, WHOLE)
    if keys:
        labels[PLUGIN_CONFIG] = key
    if cuts and spec.accelerator is not None and spec.accelerator.facts.mig:
        labels.setdefault(MIG_CONFIG, "all-disabled")
    return key, labels
