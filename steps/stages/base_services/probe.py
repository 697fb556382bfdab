"""Reads charts, CRDs, storage classes, webhooks, and the objects of the storage and certificate check."""

from collections.abc import Iterable

from msgspec import Struct

from steps.contract.objects.checks import CHECK_NAMESPACE
from steps.stages.base_services import probe_delivery
from steps.stages.base_services.contract import (
    ArgoCdObservation,
    Certificate,
    ControlObservation,
    DeliveryObservation,
    FunctionalObservation,
    StorageClass,
    VolumeClaim,
    Webhook,
)
from steps.stages.shared import probe_charts, probe_checks
from steps.stages.shared.kube_objects import Conditioned, ObjectMeta
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_charts import read_crds

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
CHECK = "pvc"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class _RawClass(Struct, frozen=True):
    """A StorageClass as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""


class Service(Struct, frozen=True):
    """Name and namespace of the Service behind a webhook."""

    namespace: str = ""
    name: str = ""


class _ClientConfig(Struct, frozen=True, rename="camel"):
    service: Service | None = None
    ca_bundle: str = ""


class _RawWebhook(Struct, frozen=True, rename="camel"):
    name: str = ""
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[_RawWebhook, ...] = ()


class _EndpointConditions(Struct, frozen=True):
    """Readiness of an endpoint of a Service; an absent value means ready."""

    ready: bool | None = None


class _Endpoint(Struct, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: _EndpointConditions = _EndpointConditions()


class _Slice(Struct, frozen=True):
    """An EndpointSlice as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[_Endpoint, ...] | None = None


class _ClaimSpec(Struct, frozen=True, rename="camel"):
    storage_class_name: str = ""
    volume_name: str = ""


class _ClaimStatus(Struct, frozen=True):
    phase: str = ""


class _RawClaim(Struct, frozen=True):
    """A PersistentVolumeClaim as the API returns it."""

    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return charts, the CRDs and webhooks that the task names, and all storage classes."""
    classes = kube.list("/apis/storage.k8s.io/v1/storageclasses", _RawClass) or ()
    return ControlObservation(
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        root_app=probe_charts.root(kube, scope),
        crds=read_crds(kube, probe_charts.read_argument(scope, "crds")),
        storage_classes=tuple(
            StorageClass(
                name=raw.metadata.name,
                provisioner=raw.provisioner,
                default=raw.metadata.annotations.get(DEFAULT_CLASS) == "true",
            )
            for raw in sorted(classes, key=lambda raw: raw.metadata.name)
        ),
        webhooks=_webhooks(kube, probe_charts.read_argument(scope, "webhook_namespaces")),
    )


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return claim, pods and certificate of check `pvc` as they are now."""
    return FunctionalObservation(claim=_claim(kube), pods=probe_checks.read(kube, CHECK), certificate=_certificate(kube))


def argo_cd(kube: KubeReader, scope: Scope) -> ArgoCdObservation:
    """Return Argo CD's Helm release, workloads and CRDs (see `probe_delivery.argo_cd`)."""
    return probe_delivery.argo_cd(kube, scope)


def delivery(kube: KubeReader, scope: Scope) -> DeliveryObservation:
    """Return Argo CD's settings, AppProjects, repository Secrets and trusted servers (see `probe_delivery.delivery`)."""
    return probe_delivery.delivery(kube, scope)


def _webhooks(kube: KubeReader, namespaces: Iterable[str]) -> tuple[Webhook, ...]:
    wanted = frozenset(namespaces)
    if not wanted:
        return ()
    kinds = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
    configurations = (row for kind in kinds for row in kube.list(f"{_ADMISSION}/{kind}", _Configuration) or ())
    webhooks = []
    for raw in (webhook for configuration in configurations for webhook in configuration.webhooks):
        service = raw.client_config.service
        if service is not None and service.namespace in wanted:
            ready = _ready_endpoints(kube, service)
            place = f"{service.namespace}/{service.name}"
            webhooks.append(Webhook(name=raw.name, service=place, ready=ready, trusted=bool(raw.client_config.ca_bundle)))
    return tuple(webhooks)


def _ready_endpoints(kube: KubeReader, service: Service) -> int:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{service.namespace}/endpointslices"
    slices = kube.list(path, _Slice, labels=f"kubernetes.io/service-name={service.name}") or ()
    return sum(
        len(endpoint.addresses) for part in slices for endpoint in part.endpoints or () if endpoint.conditions.ready is not False
    )


def _claim(kube: KubeReader) -> VolumeClaim | None:
    raw = kube.get(f"/api/v1/namespaces/{CHECK_NAMESPACE}/persistentvolumeclaims/{CHECK}", _RawClaim)
    if raw is None:
        return None
    bound = raw.status.phase == "Bound"
    return VolumeClaim(
        phase=raw.status.phase,
        storage_class=raw.spec.storage_class_name,
        volume=raw.spec.volume_name,
        events=() if bound else kube.events(CHECK_NAMESPACE, CHECK)[-5:],
    )


def _certificate(kube: KubeReader) -> Certificate | None:
    raw = kube.get(f"/apis/cert-manager.io/v1/namespaces/{CHECK_NAMESPACE}/certificates/{CHECK}", Conditioned)
    if raw is None:
        return None
    ready = raw.status.of_type("Ready")
    return Certificate(ready=ready.status == "True", reason=ready.reason, message=ready.message[:300])
