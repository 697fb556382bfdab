"""Reads the state of Helm releases: HelmChart, install Job, release Secret and workloads, or the Argo CD Application."""

import base64
import binascii
import datetime
import gzip
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.objects.charts import (
    Chart,
    ChartsObservation,
    Crd,
    InstallJob,
    Owner,
    Release,
    ReleaseState,
    Revision,
    RootApplication,
    RootState,
    Trouble,
    Workload,
    value_digests,
)
from steps.stages.shared import kube_objects, probe_applications, probe_workloads
from steps.stages.shared.kube_objects import Conditioned, Conditions, ManagedMeta, seconds, spec_change_time
from steps.stages.shared.kube_reader import KubeReader, Scope

MANAGED_BY = "helmcharts.cattle.io/managed-by"
UNMANAGED = "helmcharts.helm.cattle.io/unmanaged"
CONFIG_HASH = "helmcharts.helm.cattle.io/configHash"
RELEASE_NAME = "meta.helm.sh/release-name"
TRACKING = ("argocd.argoproj.io/tracking-id", "app.kubernetes.io/instance")
LOG_LINES = 40
LOG_CHARACTERS = 2000
_HELM = "/apis/helm.cattle.io/v1/namespaces/kube-system"


class _ChartSpec(Struct, frozen=True):
    version: str = ""


class _ChartStatus(Conditions, frozen=True, rename="camel"):
    """Status that helm-controller writes to a HelmChart."""

    job_name: str = ""


class HelmChart(Struct, frozen=True):
    """A HelmChart of helm-controller."""

    metadata: ManagedMeta = ManagedMeta()
    spec: _ChartSpec = _ChartSpec()
    status: _ChartStatus = _ChartStatus()


class AnyObject(Struct, frozen=True):
    """Any object of the API, read for its metadata alone."""

    metadata: ManagedMeta = ManagedMeta()


class _InstallJobSpec(Struct, frozen=True):
    template: AnyObject = AnyObject()


class _InstallJobStatus(Conditions, frozen=True, rename="camel"):
    completion_time: datetime.datetime | None = None


class Job(Struct, frozen=True):
    """A Job by which helm-controller installs a chart."""

    metadata: ManagedMeta = ManagedMeta()
    spec: _InstallJobSpec = _InstallJobSpec()
    status: _InstallJobStatus = _InstallJobStatus()


class DataObject(Struct, frozen=True):
    """A Secret or a ConfigMap."""

    metadata: ManagedMeta = ManagedMeta()
    data: dict[str, str] = {}


class _StoredMeta(Struct, frozen=True):
    version: str = ""


class _StoredChart(Struct, frozen=True):
    metadata: _StoredMeta = _StoredMeta()


class _StoredInfo(Struct, frozen=True):
    description: str = ""
    last_deployed: str = ""


class Stored(Struct, frozen=True):
    """A Helm release as decoded from its Secret. `config` are the values that the chart was installed with."""

    chart: _StoredChart = _StoredChart()
    info: _StoredInfo = _StoredInfo()
    config: dict[str, Any] | None = None


def read_argument(scope: Scope, name: str) -> Any:
    """Return the task's argument of this name. If verb `apply` checks a gate again, return that gate's expectation of this name."""
    arguments = scope.arguments
    return arguments.get(name) or arguments.get("gate_expectations", {}).get(name) or ()


def scoped_releases(scope: Scope) -> tuple[Release, ...]:
    """Return the expected Helm releases that the task's arguments name."""
    return msgspec.convert(read_argument(scope, "releases"), tuple[Release, ...])


def root(kube: KubeReader, scope: Scope) -> RootState | None:
    """Return the state of the stage's root Application; None if the task names no root."""
    wanted = read_argument(scope, "root_app")
    if not wanted:
        return None
    want = msgspec.convert(wanted, RootApplication)
    return RootState(application=probe_applications.read(kube, want.home, want.name), commit=scope.commit)


def observe(kube: KubeReader, releases: Iterable[Release]) -> tuple[ReleaseState, ...]:
    """Return the state in the cluster of each expected release, from helm-controller's objects or from its Argo CD Application."""
    return tuple(
        _application_state(kube, release) if release.owner is Owner.ARGO_CD else _chart_state(kube, release) for release in releases
    )


def _application_state(kube: KubeReader, release: Release) -> ReleaseState:
    application = probe_applications.read(kube, release.home, release.name)
    owned, trouble = _workloads(kube, release) if application else ((), ())
    by_helm = probe_workloads.read(kube, release.namespace, lambda raw: _is_of_helm(raw.metadata, release.name)) if owned else ()
    return ReleaseState(
        name=release.name,
        application=application,
        workloads=owned,
        trouble=trouble,
        by_helm=tuple(f"{entry.kind} {entry.name}" for entry in by_helm),
    )


def _chart_state(kube: KubeReader, release: Release) -> ReleaseState:
    raw = kube.get(f"{_HELM}/helmcharts/{release.name}", HelmChart)
    if raw is None:
        return ReleaseState(name=release.name)
    # a HelmChartConfig changes the release without touching its HelmChart
    config = kube.get(f"{_HELM}/helmchartconfigs/{release.name}", AnyObject)
    chart = Chart(
        version=raw.spec.version,
        managed=MANAGED_BY in raw.metadata.annotations,
        opted_out=raw.metadata.annotations.get(UNMANAGED, "") == "true",
        changed=max(spec_change_time(raw.metadata), spec_change_time(config.metadata) if config else 0.0),
        failed=raw.status.failure,
    )
    owned, trouble = _workloads(kube, release)
    return ReleaseState(
        name=release.name,
        chart=chart,
        job=_job(kube, release, raw.status.job_name),
        newest=revision(kube, release.namespace, f"owner=helm,name={release.name}", release.values),
        workloads=owned,
        trouble=trouble,
    )


def _job(kube: KubeReader, release: Release, name: str) -> InstallJob | None:
    name = name or f"helm-install-{release.name}"
    job = kube.get(f"/apis/batch/v1/namespaces/kube-system/jobs/{name}", Job)
    if job is None:
        return None
    complete = job.status.status("Complete") == "True"
    return InstallJob(
        uid=job.metadata.uid,
        created=seconds(job.metadata.creation_timestamp),
        completed=seconds(job.status.completion_time),
        config_hash=job.spec.template.metadata.annotations.get(CONFIG_HASH, ""),
        complete=complete,
        failed=job.status.failure,
        log="" if complete else job_log(kube, "kube-system", name),
        events=() if complete else kube.events("kube-system", release.name)[-5:],
    )


def job_log(kube: KubeReader, namespace: str, job: str) -> str:
    """Return the end of the log of the newest pod of an install Job; empty if there is none."""
    pods = probe_workloads.pods(kube, namespace, f"job-name={job}")
    return kube.log(namespace, pods[-1].metadata.name, tail=LOG_LINES)[-LOG_CHARACTERS:] if pods else ""


def deployed_revision(kube: KubeReader, namespace: str, name: str) -> Revision | None:
    """Return the newest deployed revision of a Helm release; None if there is none."""
    return revision(kube, namespace, f"owner=helm,name={name},status=deployed")


def revision(kube: KubeReader, namespace: str, labels: str, planned: Mapping[str, str] | None = None) -> Revision | None:
    """Return the newest stored revision with these labels; None if there is none.

    `planned` are the digests of the planned Helm values, with which its own are compared (`Release.values`).
    """
    path = f"/api/v1/namespaces/{namespace}/secrets"
    secrets = kube.list(path, DataObject, labels=labels, fields="type=helm.sh/release.v1") or ()
    numbered = [(int(release.metadata.labels.get("version", "0")), release) for release in secrets]
    if not numbered:
        return None
    # names sort as text, so v10 would come before v9: the label's number decides
    number, secret = max(numbered, key=lambda entry: entry[0])
    kept = decode_release(secret.data.get("release", ""))
    return Revision(
        number=number,
        status=secret.metadata.labels.get("status", ""),
        chart_version=kept.chart.metadata.version,
        description=kept.info.description[:500],
        deployed=_deployed_at(kept.info.last_deployed),
        manager=_last_manager(secret.metadata),
        values=_compared(kept, planned or {}),
    )


def _compared(kept: Stored, planned: Mapping[str, str]) -> dict[str, bool] | None:
    """Return the top-level keys of a release's values, and whether each has the planned value; None if it cannot be read."""
    if not kept.chart.metadata.version:
        return None
    return {key: planned.get(key) == digest for key, digest in value_digests(kept.config or {}).items()}


def _deployed_at(text: str) -> float:
    """Return Helm's time (RFC 3339 with up to nine decimals) in seconds since the epoch; 0 if it is no time."""
    try:
        return msgspec.convert(text, datetime.datetime).timestamp()
    except msgspec.ValidationError:
        return 0.0


def _last_manager(meta: ManagedMeta) -> str:
    """Return the client that wrote an object last, by managedFields; empty if these are absent."""
    dated = [(entry.time.timestamp(), entry.manager) for entry in meta.managed_fields if entry.time]
    return max(dated)[1] if dated else ""


def decode_release(data: str) -> Stored:
    """Decode the content of a release Secret; return empty fields if it cannot be decoded.

    The data are base64 (by Kubernetes) of base64 (by Helm) of gzip of JSON.
    """
    try:
        packed = base64.b64decode(base64.b64decode(data, validate=True), validate=True)
        # old Helm releases are stored without gzip
        text = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
        return msgspec.json.decode(text, type=Stored)
    except (binascii.Error, OSError, EOFError, zlib.error, *UNREADABLE_JSON):
        return Stored()


def _workloads(kube: KubeReader, release: Release) -> tuple[tuple[Workload, ...], tuple[Trouble, ...]]:
    """Return the workloads that the chart itself installs; if one is not settled, also why their pods are not ready."""
    owned = probe_workloads.read(
        kube, release.namespace, lambda raw: _belongs(raw.metadata, release.name), on_delete=release.on_delete
    )
    if all(entry.settled() for entry in owned):
        return owned, ()
    names = {entry.name for entry in owned}
    pods = [
        pod
        for pod in probe_workloads.pods(kube, release.namespace)
        if any(pod.metadata.name.startswith(f"{name}-") for name in names)
    ]
    return owned, probe_workloads.troubles(pods)


def _belongs(meta: kube_objects.ObjectMeta, name: str) -> bool:
    """Return True if the chart brought this object. Workloads that an operator makes have an owner, or no label of the release."""
    return not any(owner.controller for owner in meta.owner_references) and name in _marks(meta)


def _marks(meta: kube_objects.ObjectMeta) -> tuple[str, ...]:
    """Return the names of releases that Helm's annotation, the common label and Argo CD's tracking give; empty for absent ones."""
    tracked = meta.annotations.get(TRACKING[0], "").partition(":")[0]
    return meta.annotations.get(RELEASE_NAME, ""), tracked, meta.labels.get(TRACKING[1], "")


def release_of(meta: kube_objects.ObjectMeta) -> str:
    """Return the name of the release that brought an object, by the mark that is hardest to copy; empty without a mark."""
    return next(filter(None, _marks(meta)), "")


def _is_of_helm(meta: kube_objects.ObjectMeta, name: str) -> bool:
    """Return True if a Helm release of this name owns the object; what Argo CD applies has no annotation of Helm."""
    return meta.annotations.get(RELEASE_NAME) == name


def with_charts(kube: KubeReader, scope: Scope) -> ChartsObservation:
    """Return the state of the releases, the root Application and the CRDs that a task names."""
    return ChartsObservation(
        releases=observe(kube, scoped_releases(scope)),
        root_app=root(kube, scope),
        crds=read_crds(kube, read_argument(scope, "crds")),
    )


def read_crds(kube: KubeReader, names: Iterable[str]) -> tuple[Crd, ...]:
    """Return the CRDs of these names with their state; those that do not exist are left out."""
    crds = ((name, kube.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", Conditioned)) for name in names)
    return tuple(_crd(name, raw) for name, raw in crds if raw is not None)


def _crd(name: str, raw: Conditioned) -> Crd:
    accepted = raw.status.of_type("NamesAccepted")
    refused = accepted.message if accepted.status == "False" else ""
    return Crd(name=name, established=raw.status.status("Established") == "True", message=refused)
