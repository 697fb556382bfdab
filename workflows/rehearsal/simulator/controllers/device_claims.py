"""Devices that pods claim by ResourceClaimTemplates (DRA), as the default scheduler counts them on nodes.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workflows.rehearsal.simulator.api.api_kinds import CLAIM_TEMPLATES, RESOURCE_SLICES, Obj
from workflows.rehearsal.simulator.world import World

DEVICES = "devices of claims"
"""Name under which claimed devices are counted among the resources of a node."""
SHORT = "cannot allocate all claims"
"""Reason by which the scheduler rejects a node whose devices do not suffice."""


@dataclass(frozen=True)
class DeviceClaims:
    """Devices of each node, and those that pods of a ResourceClaimTemplate claim; `math.inf` stands for all of a node."""

    on_nodes: Mapping[str, int] = field(default_factory=dict)
    of_templates: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def wanted(self, pod: Obj) -> float:
        """Return the number of devices that a pod claims."""
        space = pod["metadata"]["namespace"]
        names = (claim.get("resourceClaimTemplateName", "") for claim in pod["spec"].get("resourceClaims") or ())
        return sum(self.of_templates.get((space, name), 0.0) for name in names)


def read(world: World, pods: Iterable[Obj]) -> DeviceClaims:
    """Return the devices of all nodes and the templates; both empty while no pod has a claim, as reading them costs time."""
    if not any(pod["spec"].get("resourceClaims") for pod in pods):
        return DeviceClaims()
    nodes: dict[str, int] = {}
    for shown in world.objects(RESOURCE_SLICES):
        spec = shown["spec"]
        whole = [device for device in spec["devices"] if not _is_tainted(device)]
        nodes[spec["nodeName"]] = nodes.get(spec["nodeName"], 0) + len(whole)
    templates = {
        (template["metadata"]["namespace"], template["metadata"]["name"]): _devices(template)
        for template in world.objects(CLAIM_TEMPLATES)
    }
    return DeviceClaims(nodes, templates)


def _is_tainted(device: Obj) -> bool:
    return any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in device.get("taints") or ())


def _devices(template: Obj) -> float:
    requests = [request.get("exactly") or {} for request in template["spec"]["spec"]["devices"]["requests"]]
    return sum(math.inf if exactly.get("allocationMode") == "All" else float(exactly.get("count", 1)) for exactly in requests)
