"""Reads the registry's Deployment, volume claim and Service, and the pods of the check that pushes and pulls."""

import msgspec
from msgspec import Struct

from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE, CheckPod
from steps.stages.factory_registry.contract import (
    ControlObservation,
    FunctionalObservation,
    NodePull,
    RegistryClaim,
    RegistryPort,
)
from steps.stages.shared import kube_objects, probe_checks, probe_workloads
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_containers import ContainerStatus

SPACE, NAME, CLAIM, CHECK = "registry", "registry", "registry-data", "registry"


class _ServicePort(Struct, frozen=True, rename="camel"):
    port: int = 0
    node_port: int = 0


class _ServiceSpec(Struct, frozen=True):
    ports: tuple[_ServicePort, ...] = ()


class _RegistryService(Struct, frozen=True):
    """The registry's Service as the API returns it."""

    spec: _ServiceSpec = _ServiceSpec()


class _RegistryClaimSpec(Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class _RegistryClaimStatus(Struct, frozen=True):
    phase: str = ""


class _RegistryVolumeClaim(Struct, frozen=True):
    """The registry's PersistentVolumeClaim as the API returns it."""

    spec: _RegistryClaimSpec = _RegistryClaimSpec()
    status: _RegistryClaimStatus = _RegistryClaimStatus()


class _PulledContainer(ContainerStatus, frozen=True, rename="camel"):
    """State of the container whose image the node pulled from the registry."""

    image_id: str = msgspec.field(default="", name="imageID")


class _PullingPodStatus(Struct, frozen=True, rename="camel"):
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[_PulledContainer, ...] = ()


class _PullingPod(Struct, frozen=True):
    """A pod of the check as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    status: _PullingPodStatus = _PullingPodStatus()


def control(kube: KubeReader, _scope: Scope) -> ControlObservation:
    """Return Deployment, claim and Service ports of the registry, and why its pods are not ready."""
    workloads = probe_workloads.read(kube, SPACE, lambda raw: raw.metadata.name == NAME, ("Deployment",))
    service = kube.get(f"/api/v1/namespaces/{SPACE}/services/{NAME}", _RegistryService)
    ports = service.spec.ports if service else ()
    return ControlObservation(
        workload=workloads[0] if workloads else None,
        claim=_claim(kube),
        ports=tuple(RegistryPort(port=entry.port, node_port=entry.node_port) for entry in ports),
        trouble=probe_workloads.troubles(probe_workloads.pods(kube, SPACE)),
    )


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return the pods of check `registry` with the reports of their init containers, and the image that each node pulled.

    The main container is the pulled image itself, which reports nothing: what it waits for is that of the node's pull.
    """
    path = f"/api/v1/namespaces/{CHECK_NAMESPACE}/pods"
    states = {raw.metadata.name: raw.status for raw in kube.list(path, _PullingPod, labels=f"{CHECK_LABEL}={CHECK}") or ()}
    known = [(pod, states.get(pod.name, _PullingPodStatus())) for pod in probe_checks.read(kube, CHECK)]
    return FunctionalObservation(
        pods=tuple(msgspec.structs.replace(pod, report=probe_checks.report(state.init_container_statuses)) for pod, state in known),
        pulls=tuple(_pull_of(pod, state) for pod, state in known if state.init_container_statuses),
    )


def _pull_of(pod: CheckPod, state: _PullingPodStatus) -> NodePull:
    container = next(iter(state.container_statuses), _PulledContainer())
    ended = container.state.terminated
    return NodePull(pod=pod, image_id=container.image_id, exit_code=ended.exit_code if ended else -1)


def _claim(kube: KubeReader) -> RegistryClaim | None:
    raw = kube.get(f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/{CLAIM}", _RegistryVolumeClaim)
    if raw is None:
        return None
    events = () if raw.status.phase == "Bound" else kube.events(SPACE, CLAIM)[-3:]
    return RegistryClaim(phase=raw.status.phase, volume=raw.spec.volume_name, events=events)
