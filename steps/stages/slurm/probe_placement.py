"""Reads who shares nodes with Slurm: all pods on the nodes that run slurmd, with their GPUs, owners and tolerations."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.node_taints import SUNK_LOCK
from steps.stages.shared.kube_objects import ContainerLimits, ObjectMeta, PodPhase
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.quantities import whole_number
from steps.stages.slurm.contract import ForeignPod, PlacementObservation, SlurmdRevision, StayingWorkload

GPU = "nvidia.com/gpu"
RUNTIME_CLASS = "nvidia"
REVISION = "controller-revision-hash"
ENDED = ("Succeeded", "Failed")
STATIC = ("Node", "Job")
"""Owners of pods that the lock does not concern: static pods tolerate every taint, and Jobs end."""


class _LockToleration(Struct, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    @property
    def lock(self) -> bool:
        """Return True if the toleration covers the lock (`true`, NoExecute) for as long as it is there."""
        covers = not self.key or (self.key == SUNK_LOCK and (self.operator == "Exists" or self.value == "true"))
        return covers and self.effect in ("", "NoExecute") and (bool(self.key) or self.operator == "Exists")


class _PlacedContainer(Struct, frozen=True):
    name: str = ""
    image: str = ""
    resources: ContainerLimits = ContainerLimits()


class _PlacedSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_PlacedContainer, ...] = ()
    tolerations: tuple[_LockToleration, ...] = ()
    runtime_class_name: str = ""


class PlacedPod(Struct, frozen=True):
    """A pod with what decides on its place: node, containers, tolerations and owner."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _PlacedSpec = _PlacedSpec()
    status: PodPhase = PodPhase()

    @property
    def gpus(self) -> int:
        """Return the number of whole GPUs that the pod gets."""
        return sum(whole_number(str(container.resources.limits.get(GPU, 0))) or 0 for container in self.spec.containers)

    @property
    def owner(self) -> tuple[str, str]:
        """Return kind and name of the controller that owns the pod; empty for a pod that somebody made by hand."""
        owner = next((entry for entry in self.metadata.owner_references if entry.controller), None)
        if owner is None:
            return "", ""
        if owner.kind == "ReplicaSet":  # a Deployment adds a hash to the names of its ReplicaSets
            return "Deployment", owner.name.rpartition("-")[0] or owner.name
        return owner.kind, owner.name


def read(kube: KubeReader, scope: Scope, space: str) -> PlacementObservation:
    """Return the slurmd pods, other pods with GPUs on their nodes, and the owners of all pods there."""
    pods = [pod for pod in kube.list("/api/v1/pods", PlacedPod) or () if pod.status.phase not in ENDED and pod.spec.node_name]
    slurmd = [pod for pod in pods if _is_slurmd(pod, space)]
    nodes = {pod.spec.node_name for pod in slurmd} | set(scope.nodes)
    others = [pod for pod in pods if pod.spec.node_name in nodes and not _is_slurmd(pod, space)]
    return PlacementObservation(
        slurmd=tuple(sorted(map(_revision, slurmd), key=lambda entry: entry.node)),
        foreign=tuple(_foreign(pod) for pod in others if pod.gpus or _takes_gpus(pod)),
        workloads=tuple(_workloads(others)),
    )


def _is_slurmd(pod: PlacedPod, space: str) -> bool:
    return pod.metadata.namespace == space and any(container.name == "slurmd" for container in pod.spec.containers)


def _takes_gpus(pod: PlacedPod) -> bool:
    """Return True if a pod gets GPUs by its runtime class without a request, as the DaemonSets of the GPU Operator may."""
    return pod.spec.runtime_class_name == RUNTIME_CLASS and pod.owner[0] != "DaemonSet"


def _revision(pod: PlacedPod) -> SlurmdRevision:
    image = next(container.image for container in pod.spec.containers if container.name == "slurmd")
    revision = pod.metadata.labels.get(REVISION, "")
    return SlurmdRevision(node=pod.spec.node_name, nodeset=pod.owner[1], image=image, revision=revision)


def _foreign(pod: PlacedPod) -> ForeignPod:
    return ForeignPod(name=f"{pod.metadata.namespace}/{pod.metadata.name}", node=pod.spec.node_name, gpus=pod.gpus)


def _workloads(pods: Iterable[PlacedPod]) -> list[StayingWorkload]:
    owners: dict[tuple[str, str], bool] = {}
    for pod in pods:
        kind, name = pod.owner
        if not kind or kind in STATIC:
            continue
        place = (kind, f"{pod.metadata.namespace}/{name}")
        owners[place] = owners.get(place, True) and any(toleration.lock for toleration in pod.spec.tolerations)
    return [StayingWorkload(kind=kind, name=name, tolerates=owners[kind, name]) for kind, name in sorted(owners)]
