"""Reads charts, CRDs, storage classes, webhooks, and what the storage and certificate check left."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.checks import CHECK_NAMESPACE
from steps.contract.stages.base_services import (
    ArgoCdObservation,
    Certificate,
    Claim,
    ControlObservation,
    DeliveryObservation,
    FunctionalObservation,
    StorageClass,
    Webhook,
)
from steps.probes import base_services_delivery, charts, checks
from steps.probes.conditions import Condition
from steps.probes.crds import read_crds
from steps.probes.reader import KubeReader, Scope
from steps.probes.workloads import Conditioned, Meta

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CHECK = "pvc"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class RawClass(Struct, frozen=True):
    """A StorageClass."""

    metadata: Meta = Meta()
    provisioner: str = ""


class Service(Struct, frozen=True):
    """The service behind a webhook."""

    namespace: str = ""
    name: str = ""


class ClientConfig(Struct, frozen=True, rename="camel"):
    """How the API server reaches a webhook."""

    service: Service | None = None
    ca_bundle: str = ""


class RawWebhook(Struct, frozen=True, rename="camel"):
    """One webhook."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class Configuration(Struct, frozen=True):
    """An admission configuration."""

    metadata: Meta = Meta()
    webhooks: tuple[RawWebhook, ...] = ()


class EndpointConditions(Struct, frozen=True):
    """Whether an endpoint takes traffic; absent means yes."""

    ready: bool | None = None


class Endpoint(Struct, frozen=True):
    """One endpoint."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()


class Slice(Struct, frozen=True):
    """An EndpointSlice."""

    metadata: Meta = Meta()
    endpoints: tuple[Endpoint, ...] | None = None


class ClaimSpec(Struct, frozen=True, rename="camel"):
    """What a claim asks for and got."""

    storage_class_name: str = ""
    volume_name: str = ""


class ClaimStatus(Struct, frozen=True):
    """A claim's phase."""

    phase: str = ""


class RawClaim(Struct, frozen=True):
    """A PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Charts, the CRDs and webhooks that the task asks for, and all storage classes."""
    return ControlObservation(
        releases=charts.observe(kube, charts.scoped(scope)),
        root_app=charts.root(kube, scope),
        crds=read_crds(kube, charts.asked(scope, "crds")),
        storage_classes=_storage_classes(kube),
        webhooks=_webhooks(kube, charts.asked(scope, "webhook_namespaces")),
    )


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """What the check's objects show now."""
    return FunctionalObservation(claim=_claim(kube), pods=checks.read(kube, CHECK), certificate=_certificate(kube))


def argo_cd(kube: KubeReader, scope: Scope) -> ArgoCdObservation:
    """Argo CD itself."""
    return base_services_delivery.argo_cd(kube, scope)


def delivery(kube: KubeReader, scope: Scope) -> DeliveryObservation:
    """How Argo CD is set up."""
    return base_services_delivery.delivery(kube, scope)


def _storage_classes(kube: KubeReader) -> tuple[StorageClass, ...]:
    found = kube.list("/apis/storage.k8s.io/v1/storageclasses", RawClass) or ()
    return tuple(
        StorageClass(
            name=raw.metadata.name,
            provisioner=raw.provisioner,
            default=raw.metadata.annotations.get(DEFAULT_CLASS) == "true",
        )
        for raw in sorted(found, key=lambda raw: raw.metadata.name)
    )


def _webhooks(kube: KubeReader, namespaces: Iterable[str]) -> tuple[Webhook, ...]:
    wanted = frozenset(namespaces)
    if not wanted:
        return ()
    kinds = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    every = (raw for kind in kinds for found in kube.list(f"{_ADMISSION}/{kind}", Configuration) or () for raw in found.webhooks)
    made = []
    for raw in every:
        service = raw.client_config.service
        if service is not None and service.namespace in wanted:
            ready = _ready_endpoints(kube, service)
            place = f"{service.namespace}/{service.name}"
            made.append(Webhook(name=raw.name, service=place, ready=ready, trusted=bool(raw.client_config.ca_bundle)))
    return tuple(made)


def _ready_endpoints(kube: KubeReader, service: Service) -> int:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices"
    found = kube.list(path, Slice, labels=f"kubernetes.io/service-name={service.name}") or ()
    return sum(len(one.addresses) for part in found for one in part.endpoints or () if one.conditions.ready is not False)


def _claim(kube: KubeReader) -> Claim | None:
    raw = kube.get(f"/api/v1/namespaces/{CHECK_NAMESPACE}/persistentvolumeclaims/{CHECK}", RawClaim)
    if raw is None:
        return None
    bound = raw.status.phase == "Bound"
    return Claim(
        phase=raw.status.phase,
        storage_class=raw.spec.storage_class_name,
        volume=raw.spec.volume_name,
        events=() if bound else kube.events(CHECK_NAMESPACE, CHECK)[-5:],
    )


def _certificate(kube: KubeReader) -> Certificate | None:
    raw = kube.get(f"/apis/cert-manager.io/v1/namespaces/{CHECK_NAMESPACE}/certificates/{CHECK}", Conditioned)
    if raw is None:
        return None
    ready = next((entry for entry in raw.status.conditions if entry.type == "Ready"), Condition())
    return Certificate(ready=ready.status == "True", reason=ready.reason, message=ready.message[:300])
