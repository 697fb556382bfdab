"""Reads nodes and pods as a gang scheduler sees them: units of a resource on each node, and those that no pod has requested."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from steps.contract.objects.checks import CHECK_LABEL
from steps.stages.gang.contract import SchedulableNode
from steps.stages.shared import kube_objects, probe_workloads
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.shared.quantities import quantity, whole_number

_ENDED = ("Succeeded", "Failed")


class _ResourceRequests(Struct, frozen=True):
    """Resources of a container; extended resources have equal requests and limits."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class _RequestingContainer(Struct, frozen=True):
    resources: _ResourceRequests = _ResourceRequests()


class _RequestingPodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_RequestingContainer, ...] = ()


class _RawPod(Struct, frozen=True):
    """A pod as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _RequestingPodSpec = _RequestingPodSpec()
    status: kube_objects.PodPhase = kube_objects.PodPhase()


def nodes(kube: KubeReader, resource: str, labels: Iterable[str] = ()) -> tuple[SchedulableNode, ...]:
    """Return every node with its units of a resource, its free units, and the named labels. Pods of checks are not counted."""
    keys = tuple(labels)
    taken: dict[str, int] = {}
    for pod in kube.list("/api/v1/pods", _RawPod) or ():
        # the scheduler frees the resources of pods that have ended
        if pod.spec.node_name and pod.status.phase not in _ENDED and CHECK_LABEL not in pod.metadata.labels:
            taken[pod.spec.node_name] = taken.get(pod.spec.node_name, 0) + _requested(pod, resource)
    return tuple(_node(node, resource, keys, taken) for node in probe_workloads.nodes(kube))


def free(nodes: Iterable[SchedulableNode]) -> int:
    """Return the number of units that no pod has requested, summed over the nodes that accept new pods."""
    return sum(max(node.free, 0) for node in nodes if node.schedulable)


def capacity(kube: KubeReader, flavors: Mapping[str, Mapping[str, str]], names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return flavor → resource → allocatable amount, summed over the named nodes with the flavor's labels.

    `flavors` maps flavors to labels; without flavors no node is read. Amounts that are no quantity are left out.
    """
    wanted = frozenset(names)
    nodes = [node for node in probe_workloads.nodes(kube) if node.metadata.name in wanted] if flavors else []
    totals: dict[str, dict[str, float]] = {}
    for flavor, labels in flavors.items():
        total = totals.setdefault(flavor, {})
        for node in nodes:
            for resource, text in node.status.allocatable.items() if labels.items() <= node.metadata.labels.items() else ():
                total[resource] = total.get(resource, 0.0) + (quantity(text) or 0.0)
    return totals


def _node(node: kube_objects.Node, resource: str, keys: tuple[str, ...], taken: dict[str, int]) -> SchedulableNode:
    name, labels = node.metadata.name, node.metadata.labels
    units = whole_number(node.status.allocatable.get(resource, "0")) or 0
    return SchedulableNode(
        name=name,
        schedulable=node.ready and not node.spec.unschedulable,
        labels={key: labels[key] for key in keys if key in labels},
        units=units,
        free=units - taken.get(name, 0),
    )


def _requested(pod: _RawPod, resource: str) -> int:
    quantities = (
        container.resources.requests.get(resource) or container.resources.limits.get(resource, "0")
        for container in pod.spec.containers
    )
    return sum(whole_number(text) or 0 for text in quantities)
