"""Pods in a diagnosis: states, limits, mounts and probes of their containers, and their text."""

from msgspec import Struct

from steps.contract.plain import truncate
from steps.runtime.diagnosis_objects import MESSAGE, Condition, Meta
from steps.stages.shared.probe_containers import ContainerStatus, States


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
        """Return target, interval and failure threshold of the probe in words."""
        if self.http_get is not None:
            target = f"GET {self.http_get.path} on {self.http_get.port}"
        elif self.exec is not None:
            target = f"exec {truncate(' '.join(self.exec.command), MESSAGE)}"
        else:
            target = f"connect to {(self.tcp_socket or self.grpc or Port()).port}"
        times = f"every {self.period_seconds} s, {self.failure_threshold} failures, time-out {self.timeout_seconds} s"
        return f"{target} {times}, from {self.initial_delay_seconds} s on"


class Name(Struct, frozen=True):
    """The name of another object: a ConfigMap, a device claim."""

    name: str = ""


class Resources(Struct, frozen=True):
    """A container's limits and device claims."""

    limits: dict[str, str | int] = {}
    claims: tuple[Name, ...] = ()

    def text(self) -> str:
        """Return limits and claims as `KEY=VALUE, claim NAME`."""
        parts = [f"{key}={value}" for key, value in sorted(self.limits.items())] + [f"claim {claim.name}" for claim in self.claims]
        return ", ".join(parts) or "none"


class Mount(Struct, frozen=True, rename="camel"):
    """A mount of a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class Container(Struct, frozen=True, rename="camel"):
    """A container's spec with the fields that a diagnosis shows."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    volume_mounts: tuple[Mount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None

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


class Path(Struct, frozen=True):
    """A volume from the host."""

    path: str = ""


class SecretName(Struct, frozen=True, rename="camel"):
    """A volume from a Secret; its name only."""

    secret_name: str = ""


class Claim(Struct, frozen=True, rename="camel"):
    """A volume from a persistent volume claim."""

    claim_name: str = ""


class Volume(Struct, frozen=True, rename="camel"):
    """A volume of a pod."""

    name: str = ""
    host_path: Path | None = None
    config_map: Name | None = None
    secret: SecretName | None = None
    persistent_volume_claim: Claim | None = None

    def text(self) -> str:
        """Return the source of the volume in words."""
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
    """A pod with the fields that a diagnosis shows."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

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
        """Return True if the pod shows a cause, while others only wait for something.

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
