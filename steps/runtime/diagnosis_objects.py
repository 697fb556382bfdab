"""Events, nodes, Services, certificates and Jobs in a diagnosis: the fields that are shown, and their text.

API servers write `null` for empty times (`lastTimestamp`, `eventTime`) and lists (`endpoints`), so these fields allow it.
"""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.plain import truncate

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


class Owner(Struct, frozen=True):
    """The name of an object's owner."""

    name: str = ""


class Meta(Struct, frozen=True, rename="camel"):
    """Name, labels, owner and times of an object."""

    name: str = ""
    labels: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Condition(Struct, frozen=True, rename="camel"):
    """A condition of any object."""

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


class Series(Struct, frozen=True, rename="camel"):
    """Repetitions of an event."""

    count: int = 0
    last_observed_time: str | None = None


class About(Struct, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    name: str = ""


class Event(Struct, frozen=True, rename="camel"):
    """A core/v1 Event. Its writer decides which of its times is set."""

    metadata: Meta = Meta()
    involved_object: About = About()
    reason: str | None = ""
    message: str | None = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: Series | None = None

    @property
    def time(self) -> str:
        """Return the time of the last occurrence."""
        times = (self.last_timestamp, self.event_time, self.series.last_observed_time if self.series else None)
        return max((text for text in times if text), default=self.first_timestamp or self.metadata.creation_timestamp or "")

    def text(self) -> str:
        """Return the event in words: `TIME KIND/NAME Reason: message (12 times)`."""
        # old clients set `count`, new ones a series
        times = max(self.count or 1, self.series.count if self.series else 1)
        repeated = f" ({times} times)" if times > 1 else ""
        about = f"{self.involved_object.kind}/{self.involved_object.name}"
        return f"{self.time} {about} {self.reason or ''}: {truncate((self.message or '').strip(), MESSAGE)}{repeated}"


def events_text(events: Iterable[Event]) -> str:
    """Return the newest events as lines, the oldest of them first."""
    ordered = sorted(events, key=lambda event: (event.time, event.involved_object.name))
    return "\n".join(event.text() for event in ordered[-MOST_EVENTS:])


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


class NodeInfo(Struct, frozen=True, rename="camel"):
    """Versions on a node."""

    kubelet_version: str = ""
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class NodeStatus(Struct, frozen=True, rename="camel"):
    """State of a node."""

    conditions: tuple[Condition, ...] = ()
    capacity: dict[str, str | int] = {}
    allocatable: dict[str, str | int] = {}
    node_info: NodeInfo = NodeInfo()


class Node(Struct, frozen=True):
    """A node with the fields that a diagnosis shows."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

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


class Serving(Struct, frozen=True):
    """Readiness of an endpoint; None counts as ready."""

    ready: bool | None = None


class Endpoint(Struct, frozen=True):
    """An address behind a Service."""

    conditions: Serving = Serving()


class Slice(Struct, frozen=True):
    """An EndpointSlice: some of a Service's endpoints."""

    metadata: Meta = Meta()
    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def service(self) -> str:
        """Return the Service of the slice; empty for a slice that was made by hand."""
        return self.metadata.labels.get("kubernetes.io/service-name", "")

    @property
    def ready(self) -> int:
        """Return the number of endpoints that are ready."""
        # the API defines an absent `ready` as true
        return sum(endpoint.conditions.ready is not False for endpoint in self.endpoints or ())


class Issuer(Struct, frozen=True):
    """The issuer of a certificate."""

    kind: str = "Issuer"
    name: str = ""


class CertificateSpec(Struct, frozen=True, rename="camel"):
    """Wanted Secret and issuer of a certificate. Only the Secret's name is read."""

    secret_name: str = ""
    issuer_ref: Issuer = Issuer()


class CertificateStatus(Struct, frozen=True, rename="camel"):
    """Conditions and end of validity of a certificate."""

    conditions: tuple[Condition, ...] = ()
    not_after: str | None = None


class Certificate(Struct, frozen=True):
    """A cert-manager certificate."""

    metadata: Meta = Meta()
    spec: CertificateSpec = CertificateSpec()
    status: CertificateStatus = CertificateStatus()

    @property
    def ready(self) -> bool:
        """Return True if cert-manager reports the certificate as ready."""
        return any(row.type == "Ready" and row.status == "True" for row in self.status.conditions)

    def text(self) -> str:
        """Return issuer, Secret, end of validity and conditions as lines."""
        head = f"issuer {self.spec.issuer_ref.kind} {self.spec.issuer_ref.name}; secret {self.spec.secret_name}"
        return "\n".join([f"{head}; valid to {self.status.not_after or 'never'}", *(row.text() for row in self.status.conditions)])


class JobSpec(Struct, frozen=True, rename="camel"):
    """Limits at which a Job gives up."""

    completions: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None


class JobStatus(Struct, frozen=True, rename="camel"):
    """Progress of a Job."""

    conditions: tuple[Condition, ...] = ()
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None


class Job(Struct, frozen=True):
    """A Job with the fields that a diagnosis shows."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

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
