"""Collects what a person would look at next when a verdict is no pass: events, unready pods, their logs, certificates."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.evidence import Diagnosis
from steps.contract.verdict import Verdict
from steps.errors import StepError
from steps.probes.reader import KubeReader

MOST_PODS = 8
"""Pods looked at in one namespace: the first ones tell; hundreds of the same would bury them."""
MOST_EVENTS = 20
LOG_LINES = 30


class Meta(Struct, frozen=True, rename="camel"):
    """Name of an object."""

    name: str = ""


class State(Struct, frozen=True):
    """Why a container waits or ended."""

    reason: str = ""
    message: str = ""


class States(Struct, frozen=True):
    """A container's state."""

    waiting: State | None = None
    terminated: State | None = None


class ContainerStatus(Struct, frozen=True, rename="camel"):
    """Readiness of one container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: States = States()


class Mount(Struct, frozen=True, rename="camel"):
    """A mount of a container."""

    name: str = ""
    mount_path: str = ""


class Resources(Struct, frozen=True):
    """A container's limits."""

    limits: dict[str, str] = {}


class Container(Struct, frozen=True, rename="camel"):
    """What of a container's spec a diagnosis shows."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    volume_mounts: tuple[Mount, ...] = ()


class PodSpec(Struct, frozen=True, rename="camel"):
    """Placement and containers of a pod."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()


class PodStatus(Struct, frozen=True, rename="camel"):
    """Phase and containers of a pod."""

    phase: str = ""
    reason: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A pod as a diagnosis needs it."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def healthy(self) -> bool:
        """Succeeded, or running with every container ready."""
        ready = all(container.ready for container in self.status.container_statuses)
        return self.status.phase == "Succeeded" or (self.status.phase == "Running" and ready)


class Event(Struct, frozen=True):
    """A warning event."""

    reason: str = ""
    message: str = ""


class Condition(Struct, frozen=True):
    """A condition of a certificate."""

    type: str = ""
    status: str = ""
    message: str = ""


class Conditions(Struct, frozen=True):
    """Conditions of an object."""

    conditions: tuple[Condition, ...] = ()


class Certificate(Struct, frozen=True):
    """A cert-manager certificate's state."""

    metadata: Meta = Meta()
    status: Conditions = Conditions()


class Subset(Struct, frozen=True):
    """Ready addresses behind a Service."""

    addresses: tuple[dict[str, object], ...] = ()


class Endpoints(Struct, frozen=True):
    """What a Service leads to."""

    metadata: Meta = Meta()
    subsets: tuple[Subset, ...] = ()


def diagnose(kube: KubeReader, namespaces: Iterable[str], verdict: Verdict) -> tuple[Diagnosis, ...]:
    """What the namespaces of a failing stage show. Best effort: a read that fails is itself noted, never raised."""
    found: list[Diagnosis] = []
    for namespace in namespaces:
        try:
            found += _namespace(kube, namespace)
        except StepError as error:
            found.append(Diagnosis(what="could not be read", source=f"namespace {namespace}", content=str(error)))
    for node in [row for row in verdict.nodes if row.status is not verdict.status.PASS][:MOST_PODS]:
        try:
            lines = kube.events("default", node.node)
        except StepError as error:
            lines = (str(error),)
        if lines:
            found.append(Diagnosis(what="events", source=f"node {node.node}", content="\n".join(lines[-MOST_EVENTS:])))
    return tuple(found)


def _namespace(kube: KubeReader, namespace: str) -> list[Diagnosis]:
    base = f"/api/v1/namespaces/{namespace}"
    found: list[Diagnosis] = []
    events = kube.list(f"{base}/events", Event, fields="type=Warning") or ()
    if events:
        lines = [f"{event.reason}: {event.message}" for event in events[-MOST_EVENTS:]]
        found.append(Diagnosis(what="warning events", source=f"namespace {namespace}", content="\n".join(lines)))
    sick = [pod for pod in kube.list(f"{base}/pods", Pod) or () if not pod.healthy]
    for pod in sick[:MOST_PODS]:
        found += _pod(kube, namespace, pod)
    if len(sick) > MOST_PODS:
        found.append(Diagnosis(what="more unhealthy pods", source=f"namespace {namespace}", content=str(len(sick) - MOST_PODS)))
    for endpoints in kube.list(f"{base}/endpoints", Endpoints) or ():
        if not any(subset.addresses for subset in endpoints.subsets):
            source = f"Service {namespace}/{endpoints.metadata.name}"
            found.append(Diagnosis(what="no ready endpoints", source=source, content="no pod behind this Service is ready"))
    for certificate in kube.list(f"/apis/cert-manager.io/v1/namespaces/{namespace}/certificates", Certificate) or ():
        bad = [f"{row.type}={row.status}: {row.message}" for row in certificate.status.conditions if row.status != "True"]
        if bad:
            source = f"Certificate {namespace}/{certificate.metadata.name}"
            found.append(Diagnosis(what="certificate not ready", source=source, content="\n".join(bad)))
    return found


def _pod(kube: KubeReader, namespace: str, pod: Pod) -> list[Diagnosis]:
    source = f"Pod {namespace}/{pod.metadata.name}"
    lines = [f"phase {pod.status.phase or 'unknown'} {pod.status.reason}".rstrip(), f"node {pod.spec.node_name or 'none'}"]
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        state = status.state.waiting or status.state.terminated
        if state is not None or not status.ready:
            text = f"{state.reason} {state.message}".strip() if state else "not ready"
            lines.append(f"container {status.name}: {text} (restarts {status.restart_count})")
    for container in pod.spec.containers:
        limits = ", ".join(f"{key}={value}" for key, value in sorted(container.resources.limits.items())) or "none"
        mounts = ", ".join(mount.mount_path for mount in container.volume_mounts) or "none"
        lines.append(f"container {container.name}: image {container.image}; limits {limits}; mounts {mounts}")
    found = [Diagnosis(what="pod state", source=source, content="\n".join(lines))]
    log = kube.log(namespace, pod.metadata.name, tail=LOG_LINES)
    return [*found, Diagnosis(what=f"last {LOG_LINES} log lines", source=source, content=log)] if log else found
