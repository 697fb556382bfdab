"""Types of stage base_services: observations of charts, storage, certificates and Argo CD, and the expectations of its gates."""

from typing import Any

from msgspec import Struct

from steps.contract.objects.charts import Crd, Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.objects.checks import CheckPod


class StorageClass(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kubernetes StorageClass: its name, its provisioner, and if it is the default."""

    name: str
    provisioner: str = ""
    default: bool = False


class Webhook(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A webhook of an admission configuration.

    `service` is `NAMESPACE/NAME`, `ready` counts the service's ready endpoints, `trusted` is True if its CA bundle is filled in.
    """

    name: str
    service: str
    ready: int = 0
    trusted: bool = False


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate base_services/control: charts, CRDs, storage classes, and the admission webhooks of the namespaces
    that the task names."""

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    crds: tuple[Crd, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    webhooks: tuple[Webhook, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate base_services/control.

    `crds` must be established. `storage_class` must be the only default; empty if none is needed. Each of `webhook_namespaces` must
    have at least one webhook, all of them trusted and with ready endpoints.
    """

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    crds: tuple[str, ...] = ()
    storage_class: str = ""
    webhook_namespaces: tuple[str, ...] = ()


class VolumeClaim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The PersistentVolumeClaim of check `pvc`. Its `events` are read only while it is not bound."""

    phase: str = ""
    storage_class: str = ""
    volume: str = ""
    events: tuple[str, ...] = ()


class Certificate(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The certificate that check `pvc` asks cert-manager for: status, reason and message of its condition Ready."""

    ready: bool = False
    reason: str = ""
    message: str = ""


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate base_services/functional: claim, pods and certificate of check `pvc`; pods report `wrote` and `read`."""

    claim: VolumeClaim | None = None
    pods: tuple[CheckPod, ...] = ()
    certificate: Certificate | None = None


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate base_services/functional.

    A claim of `storage_class` must bind and keep a nonce; empty if this is not checked. `certificate`: a certificate must be
    issued.
    """

    storage_class: str = ""
    certificate: bool = False


# ---- GitOps delivery -----------------------------------------------------------------------------------------------------------

COMPONENTS = ("application-controller", "applicationset-controller", "redis", "repo-server")
"""Workloads that Argo CD needs: their names end with `-COMPONENT`, or their label app.kubernetes.io/component is COMPONENT."""
REDIS = "redis"
"""Component of Argo CD whose image is not Argo CD's own, so that its version is not compared."""


class ArgoCdWorkload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload of Argo CD. `component` is its label app.kubernetes.io/component; empty if it has none."""

    workload: Workload
    component: str = ""


class ArgoCdObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate base_services/argo_cd: Argo CD's Helm release if bringup installs it, its workloads, pods that are not
    ready, and CRDs."""

    releases: tuple[ReleaseState, ...] = ()
    components: tuple[ArgoCdWorkload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    crds: tuple[Crd, ...] = ()


class ArgoCdExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate base_services/argo_cd.

    `version` is a line (`3.4`) or an exact version (`3.4.4`). `releases` holds the chart argo-cd if we install it.
    """

    namespace: str
    version: str
    releases: tuple[Release, ...] = ()
    components: tuple[str, ...] = COMPONENTS
    crds: tuple[str, ...] = ()


class Project(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An AppProject of Argo CD: its name and spec."""

    name: str
    spec: dict[str, Any] = {}


class Repository(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Secret that configures a repository of Argo CD: its address, and the names of its keys, never their values."""

    name: str
    url: str = ""
    keys: tuple[str, ...] = ()


class Trust(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """SSH host keys or certificates for the repository's server, compared as digests (`delivery.text_digest`).

    `given` are those in the site's secret file. `found` are those in Argo CD's ConfigMap for this server; entries for other servers
    are among them only if the site's file has them too.
    """

    given: tuple[str, ...] = ()
    found: tuple[str, ...] = ()


class DeliveryObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate base_services/delivery: the settings by which Argo CD deploys from Git.

    `config` maps argocd-cm's keys to `delivery.text_digest` of their texts; None without the ConfigMap. `projects` and
    `repositories` are the AppProjects and repository Secrets that the task names. `host_keys` and `certificates` are None if not
    asked for or without ConfigMap.
    """

    config: dict[str, str] | None = None
    projects: tuple[Project, ...] = ()
    repositories: tuple[Repository, ...] = ()
    host_keys: Trust | None = None
    certificates: Trust | None = None


class DeliveryExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate base_services/delivery.

    `keys` maps keys of argocd-cm to `delivery.text_digest` of their texts. `projects` must exist exactly as given. `credentials`: a
    Secret for `repo` must have some. `host_keys` and `certificates`: Argo CD must trust what the site's files give, and nothing
    else for the repository's server.
    """

    namespace: str
    repo: str
    keys: dict[str, str] = {}
    projects: tuple[Project, ...] = ()
    credentials: bool = False
    host_keys: bool = False
    certificates: bool = False
