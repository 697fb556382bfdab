"""Reads Argo CD itself, and how it is set up: argocd-cm, AppProjects, whom it trusts, which Secrets of repositories there are."""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.delivery import (
    HOST_KEYS,
    SECRET_TYPE,
    KnownHosts,
    ServerCertificates,
    certificates,
    host_keys,
    text_digest,
)
from steps.contract.stages.base_services import (
    ArgoCdObservation,
    Component,
    DeliveryObservation,
    Project,
    Repository,
    Trust,
)
from steps.probes import charts, workloads
from steps.probes.crds import read_crds
from steps.probes.reader import KubeReader, Scope
from steps.probes.workloads import Meta, Raw

PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"
ARGO_CD = "argocd"
CONFIG = "argocd-cm"


class ConfigMap(Struct, frozen=True):
    """A ConfigMap."""

    data: dict[str, str] = {}


class RawProject(Struct, frozen=True):
    """An AppProject."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}


class RawSecret(Struct, frozen=True):
    """A Secret of a repository. Only the value of `url` is ever looked at; of the others the size tells whether they are empty."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}


def argo_cd(kube: KubeReader, scope: Scope) -> ArgoCdObservation:
    """The release where we install it, the workloads that are part of Argo CD, and its CRDs."""
    space, labels = _namespace(scope), dict[str, str]()

    def keep(raw: Raw) -> bool:
        labels[raw.metadata.name] = raw.metadata.labels.get(COMPONENT, "")
        return raw.metadata.labels.get(PART_OF) == ARGO_CD

    found = workloads.read(kube, space, keep)
    unsettled = [one.name for one in found if not one.settled()]
    pods = workloads.pods(kube, space) if unsettled else ()
    troubled = (pod for pod in pods if any(pod.metadata.name.startswith(f"{name}-") for name in unsettled))
    return ArgoCdObservation(
        releases=charts.observe(kube, charts.scoped(scope)),
        components=tuple(Component(workload=one, component=labels[one.name]) for one in found),
        trouble=workloads.troubles(troubled),
        crds=read_crds(kube, charts.asked(scope, "crds")),
    )


def delivery(kube: KubeReader, scope: Scope) -> DeliveryObservation:
    """The texts of argocd-cm as digests, the AppProjects asked for, and where a task names a `repo`, Secrets of repositories; where
    it names `known_hosts` or `certificates`, those that Argo CD trusts."""
    space = _namespace(scope)
    config = _config_map(kube, space, CONFIG)
    names = (one if isinstance(one, str) else one["name"] for one in charts.asked(scope, "projects"))
    projects = ((name, kube.get(_project(space, name), RawProject)) for name in names)
    return DeliveryObservation(
        config={key: text_digest(text) for key, text in config.data.items()} if config is not None else None,
        projects=tuple(Project(name=name, spec=raw.spec) for name, raw in projects if raw is not None),
        repositories=_repositories(kube, space) if charts.asked(scope, "repo") else (),
        host_keys=_host_keys(kube, scope),
        certificates=_certificates(kube, scope),
    )


def _host_keys(kube: KubeReader, scope: Scope) -> Trust | None:
    if not (asked := charts.asked(scope, "known_hosts")):
        return None
    wanted = msgspec.convert(asked, KnownHosts)
    given = scope.trusted.get(wanted.name, ())

    def ours(text: str) -> tuple[str, ...]:
        """Lines of other hosts belong to others."""
        return tuple(one.text for one in host_keys(text, wanted.host) if one.lets_in(wanted.host) or text_digest(one.text) in given)

    return _trust(given, _config_map(kube, wanted.namespace, wanted.name), HOST_KEYS, ours)


def _certificates(kube: KubeReader, scope: Scope) -> Trust | None:
    if not (asked := charts.asked(scope, "certificates")):
        return None
    wanted = msgspec.convert(asked, ServerCertificates)
    given = scope.trusted.get(wanted.name, ())
    return _trust(given, _config_map(kube, wanted.namespace, wanted.name), wanted.host, certificates)


def _trust(given: tuple[str, ...], found: ConfigMap | None, key: str, parts: Callable[[str], tuple[str, ...]]) -> Trust | None:
    if found is None:
        return None
    return Trust(given=given, found=tuple(map(text_digest, parts(found.data.get(key, "")))))


def _config_map(kube: KubeReader, space: str, name: str) -> ConfigMap | None:
    return kube.get(f"/api/v1/namespaces/{space}/configmaps/{name}", ConfigMap)


def _namespace(scope: Scope) -> str:
    return str(charts.asked(scope, "namespace") or ARGO_CD)


def _project(space: str, name: str) -> str:
    return f"/apis/argoproj.io/v1alpha1/namespaces/{space}/appprojects/{name}"


def _repositories(kube: KubeReader, space: str) -> tuple[Repository, ...]:
    found = kube.list(f"/api/v1/namespaces/{space}/secrets", RawSecret, labels=f"{SECRET_TYPE}=repository") or ()
    return tuple(
        Repository(
            name=raw.metadata.name,
            url=_plain(raw.data.get("url", "")),
            keys=tuple(sorted(key for key, value in raw.data.items() if value)),
        )
        for raw in sorted(found, key=lambda raw: raw.metadata.name)
    )


def _plain(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
