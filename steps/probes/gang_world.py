"""Reads nodes and pods as a scheduler sees them: how many units of a resource each node has, and how many nobody has requested."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.stages.gang import Node
from steps.probes.reader import KubeReader

CHECK_LABEL = "bringup/check"
_ENDED = ("Succeeded", "Failed")


class Meta(Struct, frozen=True):
    """Name and labels."""

    name: str = ""
    labels: dict[str, str] = {}


class Condition(Struct, frozen=True):
    """A condition of a node."""

    type: str = ""
    status: str = ""


class NodeSpec(Struct, frozen=True):
    """Whether a node is cordoned."""

    unschedulable: bool = False


class NodeStatus(Struct, frozen=True):
    """What a node gives, and whether it is Ready."""

    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class RawNode(Struct, frozen=True):
    """A node as the API returns it."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Struct, frozen=True):
    """What a container asks for; extended resources have equal requests and limits."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Container(Struct, frozen=True):
    """A container's resources."""

    resources: Resources = Resources()


class PodSpec(Struct, frozen=True, rename="camel"):
    """Where a pod is and what it asks for."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()


class PodStatus(Struct, frozen=True):
    """The phase."""

    phase: str = ""


class RawPod(Struct, frozen=True):
    """A pod as the API returns it."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def nodes(kube: KubeReader, resource: str, labels: Iterable[str] = ()) -> tuple[Node, ...]:
    """Every node with its units of a resource, what is free of them, and the named labels. Pods of checks are not counted."""
    keys = tuple(labels)
    taken: dict[str, int] = {}
    for pod in kube.list("/api/v1/pods", RawPod) or ():
        if pod.spec.node_name and pod.status.phase not in _ENDED and CHECK_LABEL not in pod.metadata.labels:
            taken[pod.spec.node_name] = taken.get(pod.spec.node_name, 0) + _asked(pod, resource)
    return tuple(_node(node, resource, keys, taken) for node in kube.list("/api/v1/nodes", RawNode) or ())


def free(found: Iterable[Node]) -> int:
    """Units that nobody has requested, on nodes that take new pods."""
    return sum(max(node.free, 0) for node in found if node.schedulable)


def _node(node: RawNode, resource: str, keys: tuple[str, ...], taken: dict[str, int]) -> Node:
    name, labels = node.metadata.name, node.metadata.labels
    ready = any(entry.type == "Ready" and entry.status == "True" for entry in node.status.conditions)
    units = _whole(node.status.allocatable.get(resource, "0"))
    return Node(
        name=name,
        schedulable=ready and not node.spec.unschedulable,
        labels={key: labels[key] for key in keys if key in labels},
        units=units,
        free=units - taken.get(name, 0),
    )


def _asked(pod: RawPod, resource: str) -> int:
    found = (one.resources.requests.get(resource) or one.resources.limits.get(resource, "0") for one in pod.spec.containers)
    return sum(_whole(text) for text in found)


def _whole(text: str) -> int:
    """Extended resources are whole numbers, from a thousand on with `k`."""
    digits = text.replace("k", "000")
    return int(digits) if digits.isdigit() else 0
