"""Events, nodes, Services, certificates and Jobs in a diagnosis: the fields that are shown, and their text.

API servers write `null` for empty times (`lastTimestamp`, `eventTime`) and lists (`endpoints`), so these fields allow it.
"""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.plain_text import truncate
from steps.stages.shared.kube_objects import NodeInfo, NodeSpec, OwningObject
from steps.stages.shared.probe_containers import ContainerStatus, States

MOST_EVENTS = 25
MESSAGE = 500
"""Limit of one message in characters. Longer ones mostly repeat a stack trace."""
LABELS = (
    "nvidia.com/",
    "network.nvidia.com/",
    "resource.nvidia.com/",
    "topology.kubernetes.io/",
    "feature.node.kubernetes.io/pci-",
)
"""Prefixes of the node labels that GPU and network operators act on."""
MOST_LABELS = 60


class ShownMeta(Struct, frozen=True, rename="camel"):
    """Name, labels, owner and times of an object."""

    name: str = ""
    labels: dict[str, str] = {}
    owner_references: tuple[OwningObject, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _ShownCondition(Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    def text(self) -> str:
        """Return the condition in words: `Ready=False (since TIME) Reason: message`."""
        since = f" (since {self.last_transition_time})" if self.last_transition_time else ""
        cause = ": ".join(filter(None, (self.reason, truncate(self.message, MESSAGE))))
        return f"{self.type}={self.status}{since} {cause}".rstrip()


class _Series(Struct, frozen=True, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class _About(Struct, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    name: str = ""


class EventDiagnosis(Struct, frozen=True, rename="camel"):
    """A core/v1 Event. Its writer decides which of its times is set."""

    metadata: ShownMeta = ShownMeta()
    involved_object: _About = _About()
    reason: str | None = ""
    message: str | None = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    @property
    def time(self) -> str:
        """Return the time of the event's last occurrence."""
        times = (self.last_timestamp, self.event_time, self.series.last_observed_time if self.series else None)
        return max((text for text in times if text), default=self.first_timestamp or self.metadata.creation_timestamp or "")

    def text(self) -> str:
        """Return the event in words: `TIME KIND/NAME Reason: message (12 times)`."""
        # old clients set `count`, new ones a series
        times = max(self.count or 1, self.series.count if self.series else 1)
        repeated = f" ({times} times)" if times > 1 else ""
        about = f"{self.involved_object.kind}/{self.involved_object.name}"
        return f"{self.time} {about} {self.reason or ''}: {truncate((self.message or '').strip(), MESSAGE)}{repeated}"


def events_text(events: Iterable[EventDiagnosis]) -> str:
    """Return the newest events as lines, the oldest of them first."""
    ordered = sorted(events, key=lambda event: (event.time, event.involved_object.name))
    return "\n".join(event.text() for event in ordered[-MOST_EVENTS:])


class _ShownNodeStatus(Struct, frozen=True, rename="camel"):
    conditions: tuple[_ShownCondition, ...] = ()
    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    node_info: NodeInfo = NodeInfo()


class NodeDiagnosis(Struct, frozen=True):
    """A node with the fields that a diagnosis shows."""

    metadata: ShownMeta = ShownMeta()
    spec: NodeSpec = NodeSpec()
    status: _ShownNodeStatus = _ShownNodeStatus()

    def text(self) -> str:
        """Return conditions, resources, taints, versions and the labels that operators act on, one a line."""
        status, info = self.status, self.status.node_info
        labels = [f"{key}={value}" for key, value in sorted(self.metadata.labels.items()) if key.startswith(LABELS)]
        taints = ", ".join(taint.text() for taint in self.spec.taints) or "none"
        versions = (info.kubelet_version, info.container_runtime_version, info.kernel_version, info.os_image)
        return "\n".join(
            [
                *(f"condition {row.text()}" for row in status.conditions),
                *(
                    f"{key}: capacity {value}, allocatable {status.allocatable.get(key, 0)}"
                    for key, value in status.capacity.items()
                ),
                f"taints {taints}{'; cordoned' if self.spec.unschedulable else ''}",
                f"versions {', '.join(filter(None, versions)) or 'unknown'}",
                *(f"label {label}" for label in labels[:MOST_LABELS]),
            ]
        )


class _Serving(Struct, frozen=True):
    """Readiness of an endpoint; None counts as ready."""

    ready: bool | None = None


class _ReadyEndpoint(Struct, frozen=True):
    conditions: _Serving = _Serving()


class EndpointsDiagnosis(Struct, frozen=True):
    """An EndpointSlice: some of a Service's endpoints."""

    metadata: ShownMeta = ShownMeta()
    endpoints: tuple[_ReadyEndpoint, ...] | None = None

    @property
    def service(self) -> str:
        """Return the Service of the slice; empty for a slice that was made by hand."""
        return self.metadata.labels.get("kubernetes.io/service-name", "")

    @property
    def ready(self) -> int:
        """Return the number of endpoints that are ready."""
        # the API defines an absent `ready` as true
        return sum(endpoint.conditions.ready is not False for endpoint in self.endpoints or ())


class _Issuer(Struct, frozen=True):
    kind: str = "Issuer"
    name: str = ""


class _CertificateSpec(Struct, frozen=True, rename="camel"):
    """Wanted Secret and issuer of a certificate. Only the Secret's name is read."""

    secret_name: str = ""
    issuer_ref: _Issuer = _Issuer()


class _CertificateStatus(Struct, frozen=True, rename="camel"):
    conditions: tuple[_ShownCondition, ...] = ()
    not_after: str | None = None


class CertificateDiagnosis(Struct, frozen=True):
    """A cert-manager certificate."""

    metadata: ShownMeta = ShownMeta()
    spec: _CertificateSpec = _CertificateSpec()
    status: _CertificateStatus = _CertificateStatus()

    @property
    def ready(self) -> bool:
        """Return True if cert-manager reports the certificate as ready."""
        return any(row.type == "Ready" and row.status == "True" for row in self.status.conditions)

    def text(self) -> str:
        """Return issuer, Secret, end of validity and conditions as lines."""
        head = f"issuer {self.spec.issuer_ref.kind} {self.spec.issuer_ref.name}; secret {self.spec.secret_name}"
        return "\n".join([f"{head}; valid to {self.status.not_after or 'never'}", *(row.text() for row in self.status.conditions)])


class _JobLimits(Struct, frozen=True, rename="camel"):
    """Limits at which a Job gives up."""

    completions: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None


class _JobStatus(Struct, frozen=True, rename="camel"):
    conditions: tuple[_ShownCondition, ...] = ()
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None


class JobDiagnosis(Struct, frozen=True):
    """A Job with the fields that a diagnosis shows."""

    metadata: ShownMeta = ShownMeta()
    spec: _JobLimits = _JobLimits()
    status: _JobStatus = _JobStatus()

    @property
    def complete(self) -> bool:
        """Return True if the Job has completed."""
        return any(row.type == "Complete" and row.status == "True" for row in self.status.conditions)

    def text(self) -> str:
        """Return counts of pods, limits and conditions as lines."""
        spec, status = self.spec, self.status
        counts = f"{status.active} pods active, {status.succeeded} succeeded, {status.failed} failed; since {status.start_time}"
        limits = {"completions": spec.completions, "failures": spec.backoff_limit, "seconds": spec.active_deadline_seconds}
        limited_by = ", ".join(f"{value} {name}" for name, value in limits.items() if value is not None)
        return "\n".join([counts, f"limits: {limited_by or 'none'}", *(row.text() for row in status.conditions)])


class _HttpGet(Struct, frozen=True):
    path: str = "/"
    port: int | str = 0


class _Port(Struct, frozen=True):
    port: int | str = 0


class _Command(Struct, frozen=True):
    command: tuple[str, ...] = ()


class _Probe(Struct, frozen=True, rename="camel"):
    """A liveness, readiness or startup probe."""

    http_get: _HttpGet | None = None
    tcp_socket: _Port | None = None
    grpc: _Port | None = None
    exec: _Command | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    failure_threshold: int = 3

    def text(self) -> str:
        """Return target, interval and failure threshold of the probe in words."""
        if self.http_get is not None:
            target = f"GET {self.http_get.path} on {self.http_get.port}"
        elif self.exec is not None:
            target = f"exec {truncate(' '.join(self.exec.command), MESSAGE)}"
        else:
            target = f"connect to {(self.tcp_socket or self.grpc or _Port()).port}"
        times = f"every {self.period_seconds} s, {self.failure_threshold} failures, time-out {self.timeout_seconds} s"
        return f"{target} {times}, from {self.initial_delay_seconds} s on"


class _Name(Struct, frozen=True):
    """The name of another object: a ConfigMap, a device claim."""

    name: str = ""


class _ShownResources(Struct, frozen=True):
    limits: dict[str, str | int] = {}
    claims: tuple[_Name, ...] = ()

    def text(self) -> str:
        """Return limits and claims as `KEY=VALUE, claim NAME`."""
        parts = [f"{key}={value}" for key, value in sorted(self.limits.items())] + [f"claim {claim.name}" for claim in self.claims]
        return ", ".join(parts) or "none"


class _Mount(Struct, frozen=True, rename="camel"):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class _ShownContainer(Struct, frozen=True, rename="camel"):
    """A container's spec with the fields that a diagnosis shows."""

    name: str = ""
    image: str = ""
    resources: _ShownResources = _ShownResources()
    volume_mounts: tuple[_Mount, ...] = ()
    liveness_probe: _Probe | None = None
    readiness_probe: _Probe | None = None
    startup_probe: _Probe | None = None

    def text(self, volumes: dict[str, str]) -> list[str]:
        """Return image, limits, mounts with their volumes, and probes, one a line."""
        mounts = [
            f"{row.mount_path}{' (ro)' if row.read_only else ''} = {volumes.get(row.name, '?')}" for row in self.volume_mounts
        ]
        probes = {"liveness": self.liveness_probe, "readiness": self.readiness_probe, "startup": self.startup_probe}
        head = f"container {self.name}"
        return [
            f"{head}: image {self.image}; limits {self.resources.text()}",
            *([f"{head}: mounts {', '.join(mounts)}"] if mounts else []),
            *(f"{head}: {name} probe: {probe.text()}" for name, probe in probes.items() if probe is not None),
        ]


class _Path(Struct, frozen=True):
    """Pod volume that is a path of the host."""

    path: str = ""


class _SecretName(Struct, frozen=True, rename="camel"):
    """Pod volume that is made from a Secret; only the Secret's name is read."""

    secret_name: str = ""


class _ClaimVolume(Struct, frozen=True, rename="camel"):
    """Pod volume that is a persistent volume claim."""

    claim_name: str = ""


class _Volume(Struct, frozen=True, rename="camel"):
    name: str = ""
    host_path: _Path | None = None
    config_map: _Name | None = None
    secret: _SecretName | None = None
    persistent_volume_claim: _ClaimVolume | None = None

    def text(self) -> str:
        """Return the source of the volume in words."""
        if self.host_path is not None:
            return f"host {self.host_path.path}"
        if self.config_map is not None:
            return f"ConfigMap {self.config_map.name}"
        if self.secret is not None:
            return f"Secret {self.secret.secret_name}"
        return f"claim {self.persistent_volume_claim.claim_name}" if self.persistent_volume_claim is not None else self.name


class _ShownPodSpec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    init_containers: tuple[_ShownContainer, ...] = ()
    containers: tuple[_ShownContainer, ...] = ()
    volumes: tuple[_Volume, ...] = ()


class _ShownPodStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[_ShownCondition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodDiagnosis(Struct, frozen=True):
    """A pod with the fields that a diagnosis shows."""

    metadata: ShownMeta = ShownMeta()
    spec: _ShownPodSpec = _ShownPodSpec()
    status: _ShownPodStatus = _ShownPodStatus()

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        """Return the container states, those of init containers first."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)

    @property
    def healthy(self) -> bool:
        """Return True if the pod succeeded, or runs with every container ready."""
        ready = all(container.ready for container in self.status.container_statuses)
        return self.status.phase == "Succeeded" or (self.status.phase == "Running" and ready)

    @property
    def owner(self) -> str:
        """Return the DaemonSet, ReplicaSet or Job that owns the pod."""
        return self.metadata.owner_references[0].name if self.metadata.owner_references else ""

    @property
    def tells(self) -> bool:
        """Return True if the pod shows a cause of failure itself, instead of only waiting for something.

        A pod shows a cause if it failed, cannot be scheduled, or has a container that ended badly, restarts or is blocked.
        """
        unplaced = any(row.type == "PodScheduled" and row.status == "False" for row in self.status.conditions)
        return self.status.phase == "Failed" or unplaced or any(status.tells for status in self.statuses)

    def line(self) -> str:
        """Return name, phase, restarts and failing containers in one line."""
        restarts = sum(status.restart_count for status in self.statuses)
        failing = "".join(f"; {status_text(status)}" for status in self.statuses if status.failing)
        ready = "" if self.status.phase != "Running" else " ready" if self.healthy else " not ready"
        return f"{self.metadata.name}: {self.status.phase or 'unknown'}{ready}, restarts {restarts}{failing}"

    def text(self) -> str:
        """Return placement, conditions that do not hold, and containers with limits, mounts and probes, as lines."""
        reason = ": ".join(filter(None, (self.status.reason, truncate(self.status.message, MESSAGE))))
        volumes = {volume.name: volume.text() for volume in self.spec.volumes}
        return "\n".join(
            [
                f"phase {self.status.phase or 'unknown'} {reason}".rstrip(),
                f"node {self.spec.node_name or 'none'}",
                *([f"being deleted since {self.metadata.deletion_timestamp}"] if self.metadata.deletion_timestamp else []),
                *(row.text() for row in self.status.conditions if row.status != "True"),
                *(status_text(status) for status in self.statuses),
                *(line for container in (*self.spec.init_containers, *self.spec.containers) for line in container.text(volumes)),
            ]
        )


def status_text(status: ContainerStatus) -> str:
    """Return a container's state, reason, exit code, restarts and the end of its last start in one line."""
    parts = [_state(status.state) or ("ready" if status.ready else "not ready"), f"restarts {status.restart_count}"]
    if before := _state(status.last_state):
        parts.append(f"before: {before}")
    return f"container {status.name}: {'; '.join(parts)}"


def _state(states: States) -> str:
    if states.waiting is not None:
        return f"waiting {states.waiting.reason} {truncate(states.waiting.message, MESSAGE)}".rstrip()
    if (ended := states.terminated) is not None:
        return f"ended with {ended.exit_code} {ended.reason} {ended.finished_at or ''}".rstrip()
    return ""
