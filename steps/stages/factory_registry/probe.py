"""Reads the registry's Deployment, volume claim and Service, and the pods of the check that pushes and pulls."""

from msgspec import Struct

from steps.stages.factory_registry.contract import ControlObservation, FunctionalObservation, RegistryClaim, RegistryPort
from steps.stages.shared import probe_checks, probe_workloads
from steps.stages.shared.kube_reader import KubeReader, Scope

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
    """Return the pods of check `registry` with their reports."""
    return FunctionalObservation(pods=probe_checks.read(kube, CHECK))


def _claim(kube: KubeReader) -> RegistryClaim | None:
    raw = kube.get(f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/{CLAIM}", _RegistryVolumeClaim)
    if raw is None:
        return None
    events = () if raw.status.phase == "Bound" else kube.events(SPACE, CLAIM)[-3:]
    return RegistryClaim(phase=raw.status.phase, volume=raw.spec.volume_name, events=events)
