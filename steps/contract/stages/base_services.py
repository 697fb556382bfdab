"""Stage base_services: what charts, storage and certificates show, and what later stages need of them."""

from typing import Any

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.checks import CheckPod
from steps.contract.crds import Crd


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
    root_app: RootState | None = None
    crds: tuple[Crd, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    webhooks: tuple[Webhook, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`crds` must be established; `storage_class` must be the only default (empty: none is needed); each of
    `webhook_namespaces` must have at least one webhook, all of them trusted and with ready endpoints."""

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
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


# ---- GitOps delivery -----------------------------------------------------------------------------------------------------------

COMPONENTS = ("application-controller", "applicationset-controller", "redis", "repo-server")
"""Workloads without which Argo CD delivers nothing: the name ends with `-COMPONENT`, or label app.kubernetes.io/component is it."""
REDIS = "redis"
"""The one component whose image is not Argo CD's own."""


class Component(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload of Argo CD. `component` is its label app.kubernetes.io/component, empty where it has none."""

    workload: Workload
    component: str = ""


class ArgoCdObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Argo CD itself: its release where we install it, its workloads, what is wrong with their pods, its CRDs."""

    releases: tuple[ReleaseState, ...] = ()
    components: tuple[Component, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    crds: tuple[Crd, ...] = ()


class ArgoCdExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`version` is a line (`3.4`) or an exact version (`3.4.4`); `releases` is the chart argo-cd where we install it."""

    namespace: str
    version: str
    releases: tuple[Release, ...] = ()
    components: tuple[str, ...] = COMPONENTS
    crds: tuple[str, ...] = ()


class Project(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An AppProject with its spec."""

    name: str
    spec: dict[str, Any] = {}


class Repository(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Secret that Argo CD takes for a repository: its address, and the names of the keys it has; never their values."""

    name: str
    url: str = ""
    keys: tuple[str, ...] = ()


class Trust(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Host keys or certificates as `delivery.text_digest`: `given` by the site's file, and `found` where Argo CD reads them
    for the repository's server; of other servers only what the file gives too."""

    given: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


class DeliveryObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How Argo CD is set up: argocd-cm's keys with `delivery.text_digest` of their texts (None: no ConfigMap), the AppProjects
    asked for, the Secrets of repositories, and whom Argo CD trusts where the task asks (None: no ConfigMap)."""

    config: dict[str, str] | None = None
    projects: tuple[Project, ...] = ()
    repositories: tuple[Repository, ...] = ()
    host_keys: Trust | None = None
    certificates: Trust | None = None


class DeliveryExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`keys` maps keys of argocd-cm to `delivery.text_digest` of their texts; `projects` must be there as they are; with
    `credentials` there must be a Secret for `repo` that has some; with `host_keys` and `certificates` Argo CD must trust what the
    site's files give, and nothing else for the repository's server."""

    namespace: str
    repo: str
    keys: dict[str, str] = {}
    projects: tuple[Project, ...] = ()
    credentials: bool = False
    host_keys: bool = False
    certificates: bool = False
