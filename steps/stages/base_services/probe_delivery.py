"""Reads Argo CD itself and its settings: argocd-cm, AppProjects, trusted servers, and repository Secrets."""

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.delivery import HOST_KEYS, SECRET_TYPE, KnownHosts, ServerCertificates, certificates, host_keys, text_digest
from steps.stages.base_services.contract import ArgoCdObservation, ArgoCdWorkload, DeliveryObservation, Project, Repository, Trust
from steps.stages.shared import probe_charts, probe_workloads
from steps.stages.shared.kube_objects import DeployedWorkload, ObjectMeta
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_charts import DataObject, read_crds

PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"
ARGO_CD = "argocd"
CONFIG = "argocd-cm"


class _RawProject(Struct, frozen=True):
    """An AppProject as the API returns it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


def argo_cd(kube: KubeReader, scope: Scope) -> ArgoCdObservation:
    """Return Argo CD's Helm release if bringup installs it, its workloads with pods that are not ready, and its CRDs."""
    space, labels = _namespace(scope), dict[str, str]()

    def keep(raw: DeployedWorkload) -> bool:
        labels[raw.metadata.name] = raw.metadata.labels.get(COMPONENT, "")
        return raw.metadata.labels.get(PART_OF) == ARGO_CD

    workloads = probe_workloads.read(kube, space, keep)
    unsettled = [workload.name for workload in workloads if not workload.settled()]
    # pods are read only for their troubles, which costs a LIST
    pods = probe_workloads.pods(kube, space) if unsettled else ()
    troubled = (pod for pod in pods if any(pod.metadata.name.startswith(f"{name}-") for name in unsettled))
    return ArgoCdObservation(
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        components=tuple(ArgoCdWorkload(workload=workload, component=labels[workload.name]) for workload in workloads),
        trouble=probe_workloads.troubles(troubled),
        crds=read_crds(kube, probe_charts.read_argument(scope, "crds")),
    )


def delivery(kube: KubeReader, scope: Scope) -> DeliveryObservation:
    """Return the texts of argocd-cm as digests, and the AppProjects that the task names.

    Repository Secrets are read if the task names a `repo`. Trusted host keys and certificates are read if it names `known_hosts` or
    `certificates`.
    """
    space = _namespace(scope)
    config = _config_map(kube, space, CONFIG)
    names = (project if isinstance(project, str) else project["name"] for project in probe_charts.read_argument(scope, "projects"))
    folder = f"/apis/argoproj.io/v1alpha1/namespaces/{space}/appprojects"
    projects = ((name, kube.get(f"{folder}/{name}", _RawProject)) for name in names)
    return DeliveryObservation(
        config={key: text_digest(text) for key, text in config.data.items()} if config is not None else None,
        projects=tuple(Project(name=name, spec=raw.spec) for name, raw in projects if raw is not None),
        repositories=_repositories(kube, space) if probe_charts.read_argument(scope, "repo") else (),
        host_keys=_host_keys(kube, scope),
        certificates=_certificates(kube, scope),
    )


def _host_keys(kube: KubeReader, scope: Scope) -> Trust | None:
    if not (argument := probe_charts.read_argument(scope, "known_hosts")):
        return None
    wanted = msgspec.convert(argument, KnownHosts)
    digests = scope.trusted.get(wanted.name, ())

    def ours(text: str) -> tuple[str, ...]:
        """Return the known_hosts lines that count: those for the wanted host, and those that the site's file has too."""
        return tuple(
            key.text for key in host_keys(text, wanted.host) if key.lets_in(wanted.host) or text_digest(key.text) in digests
        )

    return _trust(digests, _config_map(kube, wanted.namespace, wanted.name), HOST_KEYS, ours)


def _certificates(kube: KubeReader, scope: Scope) -> Trust | None:
    if not (argument := probe_charts.read_argument(scope, "certificates")):
        return None
    wanted = msgspec.convert(argument, ServerCertificates)
    digests = scope.trusted.get(wanted.name, ())
    return _trust(digests, _config_map(kube, wanted.namespace, wanted.name), wanted.host, certificates)


def _trust(
    expected: tuple[str, ...], config_map: DataObject | None, key: str, parts: Callable[[str], tuple[str, ...]]
) -> Trust | None:
    if config_map is None:
        return None
    return Trust(given=expected, found=tuple(map(text_digest, parts(config_map.data.get(key, "")))))


def _config_map(kube: KubeReader, space: str, name: str) -> DataObject | None:
    return kube.get(f"/api/v1/namespaces/{space}/configmaps/{name}", DataObject)


def _namespace(scope: Scope) -> str:
    return str(probe_charts.read_argument(scope, "namespace") or ARGO_CD)


def _repositories(kube: KubeReader, space: str) -> tuple[Repository, ...]:
    secrets = kube.list(f"/api/v1/namespaces/{space}/secrets", DataObject, labels=f"{SECRET_TYPE}=repository") or ()
    return tuple(
        Repository(
            name=raw.metadata.name,
            url=_plain(raw.data.get("url", "")),
            keys=tuple(sorted(key for key, value in raw.data.items() if value)),
        )
        for raw in sorted(secrets, key=lambda raw: raw.metadata.name)
    )


def _plain(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
