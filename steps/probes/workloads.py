"""Reads Deployments, StatefulSets and DaemonSets with their pods' troubles, down to the few fields that gates compare."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from steps.contract.charts import Trouble, Workload
from steps.probes.conditions import Condition
from steps.probes.containers import ContainerStatus
from steps.probes.diagnosis_objects import cut
from steps.probes.reader import KubeReader

RESOURCES = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
MESSAGE = 300
"""Characters of one trouble's message."""
MOST_TROUBLES = 16
"""Troubles kept of one namespace: the first ones tell, hundreds of the same would bury them."""


class Owner(Struct, frozen=True):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    controller: bool = False


class Meta(Struct, frozen=True, rename="camel"):
    """Metadata as the probes need it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    deletion_timestamp: str = ""


class Image(Struct, frozen=True):
    """A container's image."""

    image: str = ""


class TemplateSpec(Struct, frozen=True):
    """A pod template's containers."""

    containers: tuple[Image, ...] = ()


class Template(Struct, frozen=True):
    """A pod template."""

    spec: TemplateSpec = TemplateSpec()


class Spec(Struct, frozen=True):
    """A workload's spec: replicas are absent in DaemonSets."""

    replicas: int = 1
    template: Template = Template()


class Status(Struct, frozen=True, rename="camel"):
    """A workload's counts, of all three kinds."""

    observed_generation: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_ready: int = 0


class Raw(Struct, frozen=True):
    """A workload as the API returns it."""

    metadata: Meta = Meta()
    spec: Spec = Spec()
    status: Status = Status()


class Conditions(Struct, frozen=True):
    """Conditions of an object."""

    conditions: tuple[Condition, ...] = ()

    def status(self, kind: str) -> str:
        """`True`, `False` or `Unknown` as the condition of this type says; empty where there is none."""
        return next((entry.status for entry in self.conditions if entry.type == kind), "")


class Conditioned(Struct, frozen=True):
    """Any object, for its conditions."""

    metadata: Meta = Meta()
    status: Conditions = Conditions()


class NodeSpec(Struct, frozen=True):
    """Whether a node is cordoned."""

    unschedulable: bool = False


class NodeStatus(Struct, frozen=True):
    """A node's resources and conditions."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Struct, frozen=True):
    """A node."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet says Ready."""
        return any(entry.type == "Ready" and entry.status == "True" for entry in self.status.conditions)


class PodSpec(Struct, frozen=True, rename="camel"):
    """Where a pod runs."""

    node_name: str = ""


class PodStatus(Struct, frozen=True, rename="camel"):
    """Phase, conditions and containers."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A pod as the probes need it."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """Running, every container ready, and not on its way out."""
        good = all(container.ready for container in self.status.container_statuses)
        return (
            self.status.phase == "Running"
            and good
            and bool(self.status.container_statuses)
            and not self.metadata.deletion_timestamp
        )

    @property
    def stuck_init(self) -> ContainerStatus | None:
        """The first init container that has not ended well; None when all have."""
        return next((entry for entry in self.status.init_container_statuses if not entry.ended_well), None)


Keep = Callable[[Raw], bool]


def read(kube: KubeReader, namespace: str, keep: Keep, kinds: Iterable[str] = tuple(RESOURCES)) -> tuple[Workload, ...]:
    """The workloads of a namespace that `keep` takes, by kind and name."""
    found = (
        _workload(kind, raw)
        for kind in kinds
        for raw in kube.list(f"/apis/apps/v1/namespaces/{namespace}/{RESOURCES[kind]}", Raw) or ()
        if keep(raw)
    )
    return tuple(sorted(found, key=lambda entry: (entry.kind, entry.name)))


def whole(quantity: str) -> int | None:
    """An extended resource as a number: such quantities are whole, from a thousand on with `k`. None where it is no such number."""
    digits = quantity.removesuffix("k")
    return int(digits) * (1000 if digits != quantity else 1) if digits.isdigit() else None


def nodes(kube: KubeReader) -> tuple[Node, ...]:
    """Every node of the cluster."""
    return kube.list("/api/v1/nodes", Node) or ()


def pods(kube: KubeReader, namespace: str, labels: str = "") -> tuple[Pod, ...]:
    """The pods of a namespace, by name."""
    return tuple(
        sorted(kube.list(f"/api/v1/namespaces/{namespace}/pods", Pod, labels=labels) or (), key=lambda pod: pod.metadata.name)
    )


def troubles(found: Iterable[Pod]) -> tuple[Trouble, ...]:
    """What keeps these pods from being ready; pods that are merely starting have none."""
    known = (trouble(pod) for pod in found if not pod.ready and pod.status.phase != "Succeeded")
    return tuple(entry for entry in known if entry is not None)[:MOST_TROUBLES]


def trouble(pod: Pod) -> Trouble | None:
    """What keeps one pod from being ready, or None."""
    name, node = pod.metadata.name, pod.spec.node_name
    for entry in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if (problem := entry.problem) is not None:
            said = problem.reason or "Error"
            return Trouble(pod=name, node=node, container=entry.name, reason=said, message=cut(problem.message, MESSAGE))
        if (last := entry.restarted_after) is not None:
            said = last.message or f"exit code {last.exit_code} before restart {entry.restart_count}"
            return Trouble(pod=name, node=node, container=entry.name, reason=last.reason or "Error", message=cut(said, MESSAGE))
    if pod.status.phase == "Failed":
        return Trouble(pod=name, node=node, reason=pod.status.reason or "Failed", message=cut(pod.status.message, MESSAGE))
    refused = next((entry for entry in pod.status.conditions if entry.type == "PodScheduled" and entry.status == "False"), None)
    if refused is not None:
        return Trouble(pod=name, reason=refused.reason, message=cut(refused.message, MESSAGE))
    return None


def _workload(kind: str, raw: Raw) -> Workload:
    status, daemon = raw.status, kind == "DaemonSet"
    containers = raw.spec.template.spec.containers
    return Workload(
        kind=kind,
        name=raw.metadata.name,
        desired=status.desired_number_scheduled if daemon else raw.spec.replicas,
        updated=status.updated_number_scheduled if daemon else status.updated_replicas,
        ready=status.number_ready if daemon else status.ready_replicas,
        generation=raw.metadata.generation,
        observed=status.observed_generation,
        image=containers[0].image if containers else "",
    )
