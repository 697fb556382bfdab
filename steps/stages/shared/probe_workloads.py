"""Reads nodes, pods, Deployments, StatefulSets and DaemonSets, and keeps the fields that gates compare."""

import datetime
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from steps.contract.charts import Trouble, Workload
from steps.contract.plain_text import truncate
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_containers import ContainerStatus


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


RESOURCES = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
MESSAGE = 300
"""Most characters of the message that says why a pod is not ready."""
MOST_TROUBLES = 16
"""Most pods of a namespace whose reason for not being ready is kept: hundreds of copies would bury the cause."""


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


class _Image(Struct, frozen=True):
    """Image and program of a container."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class _TemplateSpec(Struct, frozen=True):
    containers: tuple[_Image, ...] = ()


class _Template(Struct, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


class _UpdateStrategy(Struct, frozen=True):
    type: str = ""


class Spec(Struct, frozen=True, rename="camel"):
    """Spec of a workload; DaemonSets have no `replicas`."""

    replicas: int = 1
    template: _Template = _Template()
    update_strategy: _UpdateStrategy = _UpdateStrategy()


class _WorkloadStatus(Struct, frozen=True, rename="camel"):
    """Numbers of pods in a workload's status; each kind of workload sets some of them."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0


class Raw(Struct, frozen=True):
    """A workload as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: _WorkloadStatus = _WorkloadStatus()


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


class _PodResources(Struct, frozen=True):
    limits: dict[str, str | int] = {}


class _PodContainer(Struct, frozen=True):
    resources: _PodResources = _PodResources()


class _PodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: tuple[_PodContainer, ...] = ()

    def limit(self, resource: str) -> int:
        """Return how many units of an extended resource the pod's containers get together; 0 for quantities that are no numbers."""
        quantities = (str(container.resources.limits.get(resource, 0)) for container in self.containers)
        return sum(whole_number(text) or 0 for text in quantities)


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


Keep = Callable[[Raw], bool]


def read(
    kube: KubeReader, namespace: str, keep: Keep, kinds: Iterable[str] = tuple(RESOURCES), on_delete: Sequence[str] = ()
) -> tuple[Workload, ...]:
    """Return the workloads of a namespace for which `keep` returns True, sorted by kind and name.

    `on_delete` names StatefulSets with that update strategy whose pods of an old revision count as updated.
    """
    workloads = (
        _workload(kind, raw, on_delete)
        for kind in kinds
        for raw in kube.list(f"/apis/apps/v1/namespaces/{namespace}/{RESOURCES[kind]}", Raw) or ()
        if keep(raw)
    )
    return tuple(sorted(workloads, key=lambda entry: (entry.kind, entry.name)))


def whole_number(quantity: str) -> int | None:
    """Return an extended resource's quantity as a number; None if it is not a whole number.

    Kubernetes prints thousands with the suffix `k`.
    """
    digits = quantity.removesuffix("k")
    return int(digits) * (1000 if digits != quantity else 1) if digits.isdigit() else None


def nodes(kube: KubeReader) -> tuple[Node, ...]:
    """Return every node of the cluster."""
    return kube.list("/api/v1/nodes", Node) or ()


def expected_nodes(kube: KubeReader, scope: Scope) -> tuple[Node, ...]:
    """Return those of the expected nodes that are registered in the cluster."""
    wanted = frozenset(scope.nodes)
    return tuple(node for node in nodes(kube) if node.metadata.name in wanted)


def pods(kube: KubeReader, namespace: str, labels: str = "") -> tuple[Pod, ...]:
    """Return the pods of a namespace, sorted by name."""
    return tuple(
        sorted(kube.list(f"/api/v1/namespaces/{namespace}/pods", Pod, labels=labels) or (), key=lambda pod: pod.metadata.name)
    )


def troubles(pods: Iterable[Pod]) -> tuple[Trouble, ...]:
    """Return the reason of each pod that is not ready. Pods that are only starting have none."""
    known = (trouble(pod) for pod in pods if not pod.ready and pod.status.phase != "Succeeded")
    return tuple(entry for entry in known if entry is not None)[:MOST_TROUBLES]


def trouble(pod: Pod) -> Trouble | None:
    """Return why a pod is not ready; None if it is ready or shows no reason."""
    name, node = pod.metadata.name, pod.spec.node_name
    for entry in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if (problem := entry.problem) is not None:
            cause = problem.reason or "Error"
            return Trouble(pod=name, node=node, container=entry.name, reason=cause, message=truncate(problem.message, MESSAGE))
        # a container in a crash loop runs between its crashes and shows no problem then
        if (last := entry.restarted_after) is not None:
            cause = last.message or f"exit code {last.exit_code} before restart {entry.restart_count}"
            return Trouble(
                pod=name, node=node, container=entry.name, reason=last.reason or "Error", message=truncate(cause, MESSAGE)
            )
    if pod.status.phase == "Failed":
        return Trouble(pod=name, node=node, reason=pod.status.reason or "Failed", message=truncate(pod.status.message, MESSAGE))
    if (refused := pod.unscheduled) is not None:
        return Trouble(pod=name, reason=refused.reason, message=truncate(refused.message, MESSAGE))
    return None


def _workload(kind: str, raw: Raw, on_delete: Sequence[str]) -> Workload:
    status, daemon = raw.status, kind == "DaemonSet"
    containers = raw.spec.template.spec.containers
    # pods of such a StatefulSet keep their revision until somebody deletes them: a gate of the stage that does so compares it
    kept = kind == "StatefulSet" and raw.metadata.name in on_delete and raw.spec.update_strategy.type == "OnDelete"
    return Workload(
        kind=kind,
        name=raw.metadata.name,
        # a DaemonSet's desired number is the nodes that it selects, only its status has it
        desired=status.desired_number_scheduled if daemon else raw.spec.replicas,
        updated=status.updated_number_scheduled if daemon else status.replicas if kept else status.updated_replicas,
        ready=status.number_ready if daemon else status.ready_replicas,
        generation=raw.metadata.generation,
        observed=status.observed_generation,
        image=containers[0].image if containers else "",
    )


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


def named_daemon_sets(kube: KubeReader, keep: Keep) -> tuple[str, ...]:
    """Return the DaemonSets in all namespaces for which `keep` returns True, as `NAMESPACE/NAME`."""
    daemons = kube.list("/apis/apps/v1/daemonsets", Raw) or ()
    return tuple(sorted(f"{raw.metadata.namespace}/{raw.metadata.name}" for raw in daemons if keep(raw)))


_NFD_IMAGE = re.compile(r"(?:^|[/-])node-feature-discovery(?:-[\w.]+)*(?=[:@]|$)")


def is_nfd_worker(raw: Raw) -> bool:
    """Return True for the DaemonSet of NFD's workers, by its image, its name or its labels.

    The image also has the master and the topology updater, which write no labels of features.
    """
    meta = raw.metadata
    runs = [entry for entry in raw.spec.template.spec.containers if _NFD_IMAGE.search(entry.image)]
    others = ("topology-updater", "nfd-master", "nfd-gc")
    if any(not any(word in " ".join((*entry.command, *entry.args, meta.name)) for word in others) for entry in runs):
        return True
    named = "node-feature-discovery-worker" in meta.name or "nfd-worker" in meta.name
    labelled = meta.labels.get("app.kubernetes.io/name") == "node-feature-discovery" and meta.labels.get("role") == "worker"
    return named or labelled
