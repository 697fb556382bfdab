"""Finds pods and nodes that have a secondary address of a check's pods, whoever handed it out."""

import datetime
from collections.abc import Iterable

from msgspec import Struct

from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE
from steps.stages.network_operator import reader_ring_reports as fields
from steps.stages.network_operator.contract import NETWORK_STATUS, AddressHolder
from steps.stages.shared import kube_objects, probe_workloads
from steps.stages.shared.kube_reader import KubeReader

_SANDBOX = "PodReadyToStartContainers"
"""Condition that a kubelet sets once a pod has its network (Kubernetes 1.29).
Source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-has-network
"""
_HOLDS = ("Pending", "Running")
"""Phases of pods that keep their addresses; others have given them back."""


class _NetworkPodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _EndTime(Struct, frozen=True, rename="camel"):
    finished_at: datetime.datetime | None = None


class _EndState(Struct, frozen=True):
    terminated: _EndTime | None = None


class _EndStatus(Struct, frozen=True):
    state: _EndState = _EndState()


class _NetworkPodStatus(kube_objects.Conditions, frozen=True, rename="camel"):
    phase: str = ""
    start_time: datetime.datetime | None = None
    container_statuses: tuple[_EndStatus, ...] = ()


class _NetworkPod(Struct, frozen=True):
    """A pod with what tells its secondary addresses, and from when to when it has them."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _NetworkPodSpec = _NetworkPodSpec()
    status: _NetworkPodStatus = _NetworkPodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the pod's addresses in secondary networks."""
        networks = fields.attached_networks(self.metadata.annotations.get(NETWORK_STATUS, ""))
        return tuple(dict.fromkeys(fields.secondary_addresses(networks)))

    @property
    def begin(self) -> float:
        """Return when the pod got its network, in seconds since the epoch; 0 if nothing tells."""
        network = self.status.of_type(_SANDBOX)
        return network.since if network.status == "True" else kube_objects.seconds(self.status.start_time)

    @property
    def end(self) -> float:
        """Return when the pod's containers had ended; infinity while one has not."""
        times = [entry.state.terminated.finished_at if entry.state.terminated else None for entry in self.status.container_statuses]
        return max([kube_objects.seconds(time) if time else float("inf") for time in times], default=float("inf"))

    def is_of(self, check: str) -> bool:
        """Return True for a pod of this check."""
        return self.metadata.namespace == CHECK_NAMESPACE and self.metadata.labels.get(CHECK_LABEL) == check


class AddressSurvey(Struct, frozen=True, kw_only=True):
    """The number of pods with secondary addresses in the cluster, and who has an address of the check's pods beside these."""

    pods: int
    holders: tuple[AddressHolder, ...] = ()


def survey(kube: KubeReader, check: str) -> AddressSurvey:
    """Read the secondary addresses of all pods, and the addresses of all nodes; return who has one of the check's, sorted by name.

    The check's pods give their addresses back when they end, and IPAM may then hand them to a new pod: that one is no holder.
    """
    pods = [pod for pod in kube.list("/api/v1/pods", _NetworkPod) or () if NETWORK_STATUS in pod.metadata.annotations]
    addressed = [(pod, addresses) for pod in pods if (addresses := pod.addresses)]
    # of two pods of the check with one address, the later end counts
    ends: dict[str, float] = {}
    for pod, addresses in addressed:
        if pod.is_of(check):
            ends |= {address: max(pod.end, ends.get(address, 0.0)) for address in addresses}
    holders = [_holder(pod, addresses, ends) for pod, addresses in addressed if not pod.is_of(check) and _holds(pod)]
    holders += _nodes(probe_workloads.nodes(kube), ends)
    equal = sorted((holder for holder in holders if holder.addresses), key=lambda holder: (holder.name, holder.node))
    return AddressSurvey(pods=len(addressed), holders=tuple(equal))


def _holds(pod: _NetworkPod) -> bool:
    # the network of a pod that is being deleted may be gone already
    return pod.status.phase in _HOLDS and not pod.metadata.deletion_timestamp


def _holder(pod: _NetworkPod, addresses: Iterable[str], ends: dict[str, float]) -> AddressHolder:
    equal = tuple(address for address in addresses if address in ends and pod.begin <= ends[address])
    return AddressHolder(
        name=f"{pod.metadata.namespace}/{pod.metadata.name}", node=pod.spec.node_name or "no node", addresses=equal
    )


def _nodes(nodes: Iterable[kube_objects.Node], ends: dict[str, float]) -> Iterable[AddressHolder]:
    for node in nodes:
        equal = tuple(entry.address for entry in node.status.addresses if entry.address in ends)
        yield AddressHolder(name=node.metadata.name, addresses=equal)
