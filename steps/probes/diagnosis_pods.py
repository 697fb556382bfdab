"""Pods as a diagnosis shows them: states, limits, mounts and probes of their containers, and the text that they become."""

from msgspec import Struct

from steps.probes.containers import ContainerStatus, States
from steps.probes.diagnosis_objects import Condition, Meta, cut


class HttpGet(Struct, frozen=True):
    """A probe by HTTP."""

    path: str = "/"
    port: int | str = 0


class Port(Struct, frozen=True):
    """A probe by TCP or gRPC."""

    port: int | str = 0


class Command(Struct, frozen=True):
    """A probe by a command."""

    command: tuple[str, ...] = ()


class Probe(Struct, frozen=True, rename="camel"):
    """A liveness, readiness or startup probe."""

    http_get: HttpGet | None = None
    tcp_socket: Port | None = None
    grpc: Port | None = None
    exec: Command | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    failure_threshold: int = 3

    def text(self) -> str:
        """What is asked, how often, and how many failures count."""
        if self.http_get is not None:
            asked = f"GET {self.http_get.path} on {self.http_get.port}"
        elif self.exec is not None:
            asked = f"exec {cut(' '.join(self.exec.command))}"
        else:
            asked = f"connect to {(self.tcp_socket or self.grpc or Port()).port}"
        times = f"every {self.period_seconds} s, {self.failure_threshold} failures, time-out {self.timeout_seconds} s"
        return f"{asked} {times}, from {self.initial_delay_seconds} s on"


class Name(Struct, frozen=True):
    """Another object by its name: a ConfigMap, a device claim."""

    name: str = ""


class Resources(Struct, frozen=True):
    """A container's limits and device claims."""

    limits: dict[str, str | int] = {}
    claims: tuple[Name, ...] = ()

    def text(self) -> str:
        """`KEY=VALUE, claim NAME`."""
        found = [f"{key}={value}" for key, value in sorted(self.limits.items())] + [f"claim {one.name}" for one in self.claims]
        return ", ".join(found) or "none"


class Mount(Struct, frozen=True, rename="camel"):
    """A mount of a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class Container(Struct, frozen=True, rename="camel"):
    """What of a container's spec a diagnosis shows."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    volume_mounts: tuple[Mount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None

    def text(self, volumes: dict[str, str]) -> list[str]:
        """Image, limits, mounts with what is mounted, and probes, one line each."""
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


class Path(Struct, frozen=True):
    """A volume from the host."""

    path: str = ""


class SecretName(Struct, frozen=True, rename="camel"):
    """A volume from a Secret; its name only."""

    secret_name: str = ""


class Claim(Struct, frozen=True, rename="camel"):
    """A volume from a claim."""

    claim_name: str = ""


class Volume(Struct, frozen=True, rename="camel"):
    """A volume of a pod."""

    name: str = ""
    host_path: Path | None = None
    config_map: Name | None = None
    secret: SecretName | None = None
    persistent_volume_claim: Claim | None = None

    def text(self) -> str:
        """Where it comes from."""
        if self.host_path is not None:
            return f"host {self.host_path.path}"
        if self.config_map is not None:
            return f"ConfigMap {self.config_map.name}"
        if self.secret is not None:
            return f"Secret {self.secret.secret_name}"
        return f"claim {self.persistent_volume_claim.claim_name}" if self.persistent_volume_claim is not None else self.name


class PodSpec(Struct, frozen=True, rename="camel"):
    """Placement, containers and volumes of a pod."""

    node_name: str = ""
    init_containers: tuple[Container, ...] = ()
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()


class PodStatus(Struct, frozen=True, rename="camel"):
    """Phase, conditions and containers of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Struct, frozen=True):
    """A pod as a diagnosis needs it."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def statuses(self) -> tuple[ContainerStatus, ...]:
        """Init containers first, as they run."""
        return (*self.status.init_container_statuses, *self.status.container_statuses)

    @property
    def healthy(self) -> bool:
        """Succeeded, or running with every container ready."""
        ready = all(container.ready for container in self.status.container_statuses)
        return self.status.phase == "Succeeded" or (self.status.phase == "Running" and ready)

    @property
    def owner(self) -> str:
        """The DaemonSet, ReplicaSet or Job that it belongs to."""
        return self.metadata.owner_references[0].name if self.metadata.owner_references else ""

    @property
    def tells(self) -> bool:
        """Whether it shows a cause, while others only wait for something: it failed, cannot be placed, or a container ended badly,
        restarts or waits for more than its start."""
        unplaced = any(row.type == "PodScheduled" and row.status == "False" for row in self.status.conditions)
        return self.status.phase == "Failed" or unplaced or any(status.tells for status in self.statuses)

    def line(self) -> str:
        """Name, phase and restarts in one line, with each container that fails."""
        restarts = sum(status.restart_count for status in self.statuses)
        failing = "".join(f"; {status_text(status)}" for status in self.statuses if status.failing)
        ready = "" if self.status.phase != "Running" else " ready" if self.healthy else " not ready"
        return f"{self.metadata.name}: {self.status.phase or 'unknown'}{ready}, restarts {restarts}{failing}"

    def text(self) -> str:
        """All of it: placement, conditions that do not hold, containers with limits, mounts and probes."""
        said = ": ".join(filter(None, (self.status.reason, cut(self.status.message))))
        volumes = {volume.name: volume.text() for volume in self.spec.volumes}
        return "\n".join(
            [
                f"phase {self.status.phase or 'unknown'} {said}".rstrip(),
                f"node {self.spec.node_name or 'none'}",
                *([f"being deleted since {self.metadata.deletion_timestamp}"] if self.metadata.deletion_timestamp else []),
                *(row.text() for row in self.status.conditions if row.status != "True"),
                *(status_text(status) for status in self.statuses),
                *(line for one in (*self.spec.init_containers, *self.spec.containers) for line in one.text(volumes)),
            ]
        )


def status_text(status: ContainerStatus) -> str:
    """One line: state, reason, exit code, restarts, and how the last start ended."""
    parts = [_state(status.state) or ("ready" if status.ready else "not ready"), f"restarts {status.restart_count}"]
    if before := _state(status.last_state):
        parts.append(f"before: {before}")
    return f"container {status.name}: {'; '.join(parts)}"


def _state(states: States) -> str:
    if states.waiting is not None:
        return f"waiting {states.waiting.reason} {cut(states.waiting.message)}".rstrip()
    if (ended := states.terminated) is not None:
        return f"ended with {ended.exit_code} {ended.reason} {ended.finished_at or ''}".rstrip()
    return ""
