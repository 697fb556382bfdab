"""Reads nodes and pods as a scheduler sees them: how many units of a resource each node has, and how many nobody has requested."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.checks import CHECK_LABEL
from steps.contract.stages.gang import Node
from steps.probes import workloads
from steps.probes.reader import KubeReader

_ENDED = ("Succeeded", "Failed")


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


class Phase(Struct, frozen=True):
    """How far a pod is."""

    phase: str = ""


class RawPod(Struct, frozen=True):
    """A pod as the API returns it."""

    metadata: workloads.Meta = workloads.Meta()
    spec: PodSpec = PodSpec()
    status: Phase = Phase()


def nodes(kube: KubeReader, resource: str, labels: Iterable[str] = ()) -> tuple[Node, ...]:
    """Every node with its units of a resource, what is free of them, and the named labels. Pods of checks are not counted."""
    keys = tuple(labels)
    taken: dict[str, int] = {}
    for pod in kube.list("/api/v1/pods", RawPod) or ():
        if pod.spec.node_name and pod.status.phase not in _ENDED and CHECK_LABEL not in pod.metadata.labels:
            taken[pod.spec.node_name] = taken.get(pod.spec.node_name, 0) + _asked(pod, resource)
    return tuple(_node(node, resource, keys, taken) for node in workloads.nodes(kube))


def free(found: Iterable[Node]) -> int:
    """Units that nobody has requested, on nodes that take new pods."""
    return sum(max(node.free, 0) for node in found if node.schedulable)


def _node(node: workloads.Node, resource: str, keys: tuple[str, ...], taken: dict[str, int]) -> Node:
    name, labels = node.metadata.name, node.metadata.labels
    units = workloads.whole(node.status.allocatable.get(resource, "0")) or 0
    return Node(
        name=name,
        schedulable=node.ready and not node.spec.unschedulable,
        labels={key: labels[key] for key in keys if key in labels},
        units=units,
        free=units - taken.get(name, 0),
    )


def _asked(pod: RawPod, resource: str) -> int:
    found = (one.resources.requests.get(resource) or one.resources.limits.get(resource, "0") for one in pod.spec.containers)
    return sum(workloads.whole(text) or 0 for text in found)
