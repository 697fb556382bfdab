"""Kubernetes objects as the API returns them, with the fields that several probes read.

`WorkloadObject` and its parts are generic: a probe names the part of a pod's spec that it needs, so that nothing else is decoded.
"""

import datetime
import re
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from steps.stages.shared.probe_containers import ContainerStatus
from steps.stages.shared.quantities import whole_number

PodSpecT = TypeVar("PodSpecT")
"""The part of a pod's spec that a probe reads, as a Struct."""
_PLUGINS_FOLDER = re.compile(r"/device-plugins/?$")


class Condition(Struct, frozen=True, rename="camel"):
    """A condition of any object; only nodes set the heartbeat time."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime.datetime | None = None
    last_transition_time: datetime.datetime | None = None

    @property
    def since(self) -> float:
        """Time of the last transition in seconds since the epoch; 0 if it is not set."""
        return seconds(self.last_transition_time)

    @property
    def seen(self) -> float:
        """Time of the last heartbeat in seconds since the epoch; 0 if it is not set."""
        return seconds(self.last_heartbeat_time)


def seconds(time: datetime.datetime | None) -> float:
    """Return a time as seconds since the epoch; 0 for None."""
    return time.timestamp() if time else 0.0


class OwningObject(Struct, frozen=True):
    """An entry of an object's `ownerReferences`."""

    kind: str = ""
    name: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True, rename="camel"):
    """Metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwningObject, ...] = ()
    deletion_timestamp: str = ""


class Conditions(Struct, frozen=True):
    """Status of an object with its conditions, and look-ups by condition type."""

    conditions: tuple[Condition, ...] = ()

    def status(self, kind: str) -> str:
        """Return `True`, `False` or `Unknown` of the condition of this type; empty if there is no such condition."""
        return self.of_type(kind).status

    def of_type(self, kind: str) -> Condition:
        """Return the first condition of this type; an empty one if there is no such condition."""
        return next((entry for entry in self.conditions if entry.type == kind), Condition())

    @property
    def failure(self) -> str:
        """Return `reason: message` of the condition Failed=True; empty if the object has not failed."""
        failed = next((entry for entry in self.conditions if entry.type == "Failed" and entry.status == "True"), None)
        return f"{failed.reason}: {failed.message}" if failed else ""


class Conditioned(Struct, frozen=True):
    """Metadata and conditions of any object."""

    metadata: ObjectMeta = ObjectMeta()
    status: Conditions = Conditions()


class Managed(Struct, frozen=True, rename="camel"):
    """An entry of managedFields: a manager, the fields it wrote, and the time."""

    manager: str = ""
    time: datetime.datetime | None = None
    subresource: str = ""
    fields_v1: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="fieldsV1")


class ManagedMeta(Struct, frozen=True, rename="camel"):
    """Metadata with managedFields."""

    name: str = ""
    uid: str = ""
    creation_timestamp: datetime.datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: tuple[Managed, ...] = ()


def spec_change_time(meta: ManagedMeta) -> float:
    """Return when the object's spec was last written, in seconds since the epoch; its creation time if managedFields are absent."""
    # status writes have a subresource; they do not change what the operator must reconcile
    times = [entry.time for entry in meta.managed_fields if entry.time and not entry.subresource and "f:spec" in entry.fields_v1]
    newest = max(times, default=meta.creation_timestamp)
    return newest.timestamp() if newest else 0.0


class ContainerImage(Struct, frozen=True):
    """Image and program of a container."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class EnvVariable(Struct, frozen=True):
    """An environment variable of a container; its value is None or empty if it comes from another object."""

    name: str = ""
    value: str | None = ""


class ContainerProgram(ContainerImage, frozen=True):
    """Name, image, program and environment of a container."""

    name: str = ""
    env: tuple[EnvVariable, ...] = ()

    @property
    def program(self) -> str:
        """Return command and arguments as one text, or the container's name if its image decides what runs."""
        return " ".join((*self.command, *self.args)) or self.name

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the environment variables as `NAME=VALUE`."""
        return tuple(f"{entry.name}={entry.value}" for entry in self.env)


class HostFolder(Struct, frozen=True):
    """A `hostPath` volume: a path on the node."""

    path: str = ""


class LocalReference(Struct, frozen=True):
    """A reference to an object in the namespace of the one that names it."""

    name: str = ""


class Volume(Struct, frozen=True, rename="camel"):
    """A volume of a pod that comes from the node or a ConfigMap."""

    name: str = ""
    host_path: HostFolder | None = None
    config_map: LocalReference | None = None


class ImagePodSpec(Struct, frozen=True):
    """Containers of a pod, read for their images and programs."""

    containers: tuple[ContainerImage, ...] = ()


class ProgramPodSpec(Struct, frozen=True):
    """Containers of a pod, read for their programs and environments."""

    containers: tuple[ContainerProgram, ...] = ()


class PluginPodSpec(ProgramPodSpec, frozen=True):
    """Containers and volumes of a pod that may be a device plugin."""

    volumes: tuple[Volume, ...] = ()

    @property
    def registers(self) -> bool:
        """Return True if the pod mounts the folder in which device plugins register with the kubelet."""
        return any(volume.host_path and _PLUGINS_FOLDER.search(volume.host_path.path) for volume in self.volumes)


class PodTemplate(Struct, Generic[PodSpecT], frozen=True):
    """The template of a workload's pods."""

    spec: PodSpecT


class _UpdateStrategy(Struct, frozen=True):
    type: str = ""


class WorkloadSpec(Struct, Generic[PodSpecT], frozen=True, rename="camel"):
    """Spec of a Deployment, StatefulSet or DaemonSet; the last has no `replicas`, a Deployment no `updateStrategy`."""

    template: PodTemplate[PodSpecT]
    replicas: int = 1
    update_strategy: _UpdateStrategy = _UpdateStrategy()


class WorkloadObject(Struct, Generic[PodSpecT], frozen=True):
    """A Deployment, StatefulSet or DaemonSet."""

    spec: WorkloadSpec[PodSpecT]
    metadata: ObjectMeta = ObjectMeta()

    @property
    def pod(self) -> PodSpecT:
        """Return the spec of the workload's pods."""
        return self.spec.template.spec


class _WorkloadStatus(Struct, frozen=True, rename="camel"):
    """Numbers of pods in a workload's status; each kind of workload sets some of them."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0


class DeployedWorkload(WorkloadObject[ImagePodSpec], frozen=True):
    """A workload with the images of its pods and the numbers in its status."""

    status: _WorkloadStatus = _WorkloadStatus()


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def text(self) -> str:
        """Return the taint as `KEY=VALUE:EFFECT`."""
        return f"{self.key}={self.value}:{self.effect}"


class NodeSpec(Struct, frozen=True):
    """Settings that keep pods away from a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class _Address(Struct, frozen=True):
    type: str = ""
    address: str = ""


class NodeInfo(Struct, frozen=True, rename="camel"):
    """Versions of the programs on a node."""

    kubelet_version: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class _NodeStatus(Conditions, frozen=True, rename="camel"):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    addresses: tuple[_Address, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(Struct, frozen=True):
    """A node of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: _NodeStatus = _NodeStatus()

    @property
    def ready(self) -> bool:
        """Return True if the node's condition Ready is True."""
        return self.status.status("Ready") == "True"


class ContainerLimits(Struct, frozen=True):
    """Resource limits of a container; those of extended resources equal its requests."""

    limits: dict[str, str | int] = {}


class _PodContainer(Struct, frozen=True):
    resources: ContainerLimits = ContainerLimits()


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_PodContainer, ...] = ()

    def limit(self, resource: str) -> int:
        """Return how many units of an extended resource the pod's containers get together; 0 for quantities that are no numbers."""
        quantities = (str(container.resources.limits.get(resource, 0)) for container in self.containers)
        return sum(whole_number(text) or 0 for text in quantities)


class PodPhase(Struct, frozen=True):
    """Status of a pod, read for its phase alone."""

    phase: str = ""


class _PodStatus(Conditions, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: datetime.datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A pod of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def ready(self) -> bool:
        """Return True if the pod runs, all its containers are ready, and it is not being deleted."""
        good = all(container.ready for container in self.status.container_statuses)
        return (
            self.status.phase == "Running"
            and good
            and bool(self.status.container_statuses)
            and not self.metadata.deletion_timestamp
        )

    @property
    def unscheduled(self) -> Condition | None:
        """Return the condition by which the scheduler refuses the pod; None if it does not."""
        conditions = self.status.conditions
        return next((entry for entry in conditions if entry.type == "PodScheduled" and entry.status == "False"), None)

    @property
    def stuck_init(self) -> ContainerStatus | None:
        """Return the first init container that has not ended with exit code 0; None if all have."""
        return next((entry for entry in self.status.init_container_statuses if not entry.ended_well), None)
