"""Events, nodes, Services and certificates as a diagnosis shows them: the fields that a person would ask for, and their text.

API servers write `null` for empty times (`lastTimestamp`, `eventTime`) and lists (`endpoints`): such fields allow it.
"""

from collections.abc import Iterable

from msgspec import Struct

MOST_EVENTS = 25
MESSAGE = 500
"""Characters of one message; the rest of a longer one repeats a stack."""
LABELS = (
    "nvidia.com/",
    "network.nvidia.com/",
    "resource.nvidia.com/",
    "topology.kubernetes.io/",
    "feature.node.kubernetes.io/pci-",
)
"""Prefixes of the node labels that GPU and network operators act on."""
MOST_LABELS = 60


def cut(text: str, most: int = MESSAGE) -> str:
    """The beginning of a text, up to white space: half a secret would not be recognized as one and taken out."""
    if len(text) <= most:
        return text
    words = text[: most + 1].rsplit(None, 1)
    kept = words[0] if len(words) == 2 else ""
    return f"{kept} … ({len(text)} characters)".lstrip()


class Owner(Struct, frozen=True):
    """What an object belongs to."""

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
        """`Ready=False (since TIME) Reason: message`."""
        since = f" (since {self.last_transition_time})" if self.last_transition_time else ""
        said = ": ".join(filter(None, (self.reason, cut(self.message))))
        return f"{self.type}={self.status}{since} {said}".rstrip()


class Series(Struct, frozen=True, rename="camel"):
    """An event that keeps coming."""

    count: int = 0
    last_observed_time: str | None = None


class About(Struct, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""


class Event(Struct, frozen=True, rename="camel"):
    """A core/v1 Event; which of its times is set depends on who wrote it."""

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
        """When it was last seen."""
        times = (self.last_timestamp, self.event_time, self.series.last_observed_time if self.series else None)
        return max((text for text in times if text), default=self.first_timestamp or self.metadata.creation_timestamp or "")

    def text(self) -> str:
        """`TIME KIND/NAME Reason: message (12 times)`."""
        times = max(self.count or 1, self.series.count if self.series else 1)
        again = f" ({times} times)" if times > 1 else ""
        about = f"{self.involved_object.kind}/{self.involved_object.name}"
        return f"{self.time} {about} {self.reason or ''}: {cut((self.message or '').strip())}{again}"


def events_text(found: Iterable[Event]) -> str:
    """The newest events, oldest of them first."""
    ordered = sorted(found, key=lambda event: (event.time, event.involved_object.name))
    return "\n".join(event.text() for event in ordered[-MOST_EVENTS:])


class Taint(Struct, frozen=True):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def text(self) -> str:
        """`KEY=VALUE:EFFECT`."""
        return f"{self.key}={self.value}:{self.effect}"


class NodeSpec(Struct, frozen=True):
    """What keeps pods away from a node."""

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
    """A node as a diagnosis needs it."""

    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def text(self) -> str:
        """Conditions, resources, taints, versions and the labels that operators act on, one line each."""
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
    """Whether an endpoint is ready; absent means yes."""

    ready: bool | None = None


class Endpoint(Struct, frozen=True):
    """One address behind a Service."""

    conditions: Serving = Serving()


class Slice(Struct, frozen=True):
    """Some of a Service's endpoints."""

    metadata: Meta = Meta()
    endpoints: tuple[Endpoint, ...] | None = None

    @property
    def service(self) -> str:
        """The Service that it belongs to; empty for those that somebody made by hand."""
        return self.metadata.labels.get("kubernetes.io/service-name", "")

    @property
    def ready(self) -> int:
        """How many endpoints are ready."""
        return sum(endpoint.conditions.ready is not False for endpoint in self.endpoints or ())


class Issuer(Struct, frozen=True):
    """Who is to issue a certificate."""

    kind: str = "Issuer"
    name: str = ""


class CertificateSpec(Struct, frozen=True, rename="camel"):
    """What a certificate is to be; its Secret's name only."""

    secret_name: str = ""
    issuer_ref: Issuer = Issuer()


class CertificateStatus(Struct, frozen=True, rename="camel"):
    """What it is."""

    conditions: tuple[Condition, ...] = ()
    not_after: str | None = None


class Certificate(Struct, frozen=True):
    """A cert-manager certificate."""

    metadata: Meta = Meta()
    spec: CertificateSpec = CertificateSpec()
    status: CertificateStatus = CertificateStatus()

    @property
    def ready(self) -> bool:
        """Whether cert-manager says so."""
        return any(row.type == "Ready" and row.status == "True" for row in self.status.conditions)

    def text(self) -> str:
        """Issuer, Secret, end of validity and conditions."""
        head = f"issuer {self.spec.issuer_ref.kind} {self.spec.issuer_ref.name}; secret {self.spec.secret_name}"
        return "\n".join([f"{head}; valid to {self.status.not_after or 'never'}", *(row.text() for row in self.status.conditions)])


class JobSpec(Struct, frozen=True, rename="camel"):
    """When a Job gives up."""

    completions: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None


class JobStatus(Struct, frozen=True, rename="camel"):
    """How far a Job is."""

    conditions: tuple[Condition, ...] = ()
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: str | None = None


class Job(Struct, frozen=True):
    """A Job as a diagnosis needs it."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def complete(self) -> bool:
        """Whether it did all it had to."""
        return any(row.type == "Complete" and row.status == "True" for row in self.status.conditions)

    def text(self) -> str:
        """Counts of pods, what makes it give up, and its conditions."""
        spec, status = self.spec, self.status
        counts = f"{status.active} pods active, {status.succeeded} succeeded, {status.failed} failed; since {status.start_time}"
        limits = {"completions": spec.completions, "failures": spec.backoff_limit, "seconds": spec.active_deadline_seconds}
        given = ", ".join(f"{value} {name}" for name, value in limits.items() if value is not None)
        return "\n".join([counts, f"limits: {given or 'none'}", *(row.text() for row in status.conditions)])
