"""Stage base_services: what charts, storage and certificates show, and what later stages need of them."""

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState
from steps.contract.checks import CheckPod


class Crd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CustomResourceDefinition. `established`: the API server serves it."""

    name: str
    established: bool = False
    message: str = ""


class StorageClass(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A storage class."""

    name: str
    provisioner: str = ""
    default: bool = False


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One webhook of an admission configuration: `service` is `NAMESPACE/NAME`, `ready` counts the service's ready endpoints,
    `trusted` says whether its CA bundle is filled in."""

    name: str
    service: str
    ready: int = 0
    trusted: bool = False


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Charts, CRDs, storage classes, and the webhooks of the namespaces asked for."""

    releases: tuple[ReleaseState, ...] = ()
    crds: tuple[Crd, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    webhooks: tuple[Webhook, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`crds` must be established; `storage_class` must be the only default (empty: none is needed); each of
    `webhook_namespaces` must have at least one webhook, all of them trusted and with ready endpoints."""

    releases: tuple[Release, ...] = ()
    crds: tuple[str, ...] = ()
    storage_class: str = ""
    webhook_namespaces: tuple[str, ...] = ()


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A PersistentVolumeClaim. `events` are read while it is not bound."""

    phase: str = ""
    storage_class: str = ""
    volume: str = ""
    events: tuple[str, ...] = ()


class Certificate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Certificate's condition Ready."""

    ready: bool = False
    reason: str = ""
    message: str = ""


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the check `pvc` left: its claim, its pods with `wrote` and `read` in their reports, and its certificate."""

    claim: Claim | None = None
    pods: tuple[CheckPod, ...] = ()
    certificate: Certificate | None = None


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`storage_class` must bind and hold a nonce (empty: not checked); `certificate`: one must be issued."""

    storage_class: str = ""
    certificate: bool = False
