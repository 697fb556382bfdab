"""Reads what the cluster shows of Helm releases: HelmChart, install Job, release Secret, workloads, or the Argo CD Application."""

import base64
import binascii
import gzip
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.charts import (
    Chart,
    InstallJob,
    Owner,
    Release,
    ReleaseState,
    Revision,
    RootApplication,
    RootState,
    Trouble,
    Workload,
)
from steps.probes import applications, workloads
from steps.probes.conditions import Condition
from steps.probes.managed import Meta, spec_changed
from steps.probes.reader import KubeReader, Scope

MANAGED_BY = "helmcharts.cattle.io/managed-by"
UNMANAGED = "helmcharts.helm.cattle.io/unmanaged"
CONFIG_HASH = "helmcharts.helm.cattle.io/configHash"
RELEASE_NAME = "meta.helm.sh/release-name"
TRACKING = ("argocd.argoproj.io/tracking-id", "app.kubernetes.io/instance")
LOG_LINES = 40
LOG_CHARACTERS = 2000
_HELM = "/apis/helm.cattle.io/v1/namespaces/kube-system"


class ChartSpec(Struct, frozen=True):
    """The pinned version of a HelmChart."""

    version: str = ""


class ChartStatus(Struct, frozen=True, rename="camel"):
    """What helm-controller says of a HelmChart."""

    job_name: str = ""
    conditions: tuple[Condition, ...] = ()


class HelmChart(Struct, frozen=True):
    """A HelmChart."""

    metadata: Meta = Meta()
    spec: ChartSpec = ChartSpec()
    status: ChartStatus = ChartStatus()


class AnyObject(Struct, frozen=True):
    """Any object, for its metadata."""

    metadata: Meta = Meta()


class JobTemplate(Struct, frozen=True):
    """A Job's pod template."""

    metadata: Meta = Meta()


class JobSpec(Struct, frozen=True):
    """A Job's template."""

    template: JobTemplate = JobTemplate()


class JobStatus(Struct, frozen=True):
    """A Job's conditions."""

    conditions: tuple[Condition, ...] = ()


class Job(Struct, frozen=True):
    """An install Job."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Secret(Struct, frozen=True):
    """A release Secret; `data.release` is decoded for the newest revision only."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}


class StoredMeta(Struct, frozen=True):
    """Metadata of a stored chart."""

    version: str = ""


class StoredChart(Struct, frozen=True):
    """A stored chart."""

    metadata: StoredMeta = StoredMeta()


class StoredInfo(Struct, frozen=True):
    """What became of a revision."""

    description: str = ""


class Stored(Struct, frozen=True):
    """A stored Helm release."""

    chart: StoredChart = StoredChart()
    info: StoredInfo = StoredInfo()


def asked(scope: Scope, name: str) -> Any:
    """What a task asks its probe to read: its argument, or (when `apply` re-checks a gate) that gate's expectation."""
    arguments = scope.arguments
    return arguments.get(name) or arguments.get("gate_expectations", {}).get(name) or ()


def scoped(scope: Scope) -> tuple[Release, ...]:
    """The releases that a task is about."""
    return msgspec.convert(asked(scope, "releases"), tuple[Release, ...])


def root(kube: KubeReader, scope: Scope) -> RootState | None:
    """What the cluster shows of the stage's root Application; None where the task asks for none."""
    wanted = asked(scope, "root_app")
    if not wanted:
        return None
    want = msgspec.convert(wanted, RootApplication)
    return RootState(application=applications.read(kube, want.home, want.name), commit=scope.commit)


def observe(kube: KubeReader, releases: Iterable[Release]) -> tuple[ReleaseState, ...]:
    """What the cluster shows of each release."""
    return tuple(_application_state(kube, one) if one.owner is Owner.ARGO_CD else _chart_state(kube, one) for one in releases)


def _application_state(kube: KubeReader, release: Release) -> ReleaseState:
    found = applications.read(kube, release.home, release.name)
    owned, trouble = _workloads(kube, release) if found else ((), ())
    return ReleaseState(name=release.name, application=found, workloads=owned, trouble=trouble)


def _chart_state(kube: KubeReader, release: Release) -> ReleaseState:
    found = kube.get(f"{_HELM}/helmcharts/{release.name}", HelmChart)
    if found is None:
        return ReleaseState(name=release.name)
    config = kube.get(f"{_HELM}/helmchartconfigs/{release.name}", AnyObject)
    failed = next((entry for entry in found.status.conditions if entry.type == "Failed" and entry.status == "True"), None)
    chart = Chart(
        version=found.spec.version,
        managed=MANAGED_BY in found.metadata.annotations,
        opted_out=found.metadata.annotations.get(UNMANAGED, "") == "true",
        changed=max(spec_changed(found.metadata), spec_changed(config.metadata) if config else 0.0),
        failed=f"{failed.reason}: {failed.message}" if failed else "",
    )
    owned, trouble = _workloads(kube, release)
    return ReleaseState(
        name=release.name,
        chart=chart,
        job=_job(kube, release, found.status.job_name),
        newest=_newest(kube, release),
        workloads=owned,
        trouble=trouble,
    )


def _job(kube: KubeReader, release: Release, name: str) -> InstallJob | None:
    name = name or f"helm-install-{release.name}"
    job = kube.get(f"/apis/batch/v1/namespaces/kube-system/jobs/{name}", Job)
    if job is None:
        return None
    conditions = {entry.type: entry for entry in job.status.conditions if entry.status == "True"}
    complete, failed = "Complete" in conditions, conditions.get("Failed")
    created = job.metadata.creation_timestamp
    return InstallJob(
        uid=job.metadata.uid,
        created=created.timestamp() if created else 0.0,
        config_hash=job.spec.template.metadata.annotations.get(CONFIG_HASH, ""),
        complete=complete,
        failed=f"{failed.reason}: {failed.message}" if failed else "",
        log="" if complete else _job_log(kube, name),
        events=() if complete else kube.events("kube-system", release.name)[-5:],
    )


def _job_log(kube: KubeReader, job: str) -> str:
    """The end of the log of the Job's newest pod."""
    found = workloads.pods(kube, "kube-system", f"job-name={job}")
    return kube.log("kube-system", found[-1].metadata.name, tail=LOG_LINES)[-LOG_CHARACTERS:] if found else ""


def _newest(kube: KubeReader, release: Release) -> Revision | None:
    return revision(kube, release.namespace, f"owner=helm,name={release.name}")


def deployed(kube: KubeReader, namespace: str, name: str) -> Revision | None:
    """The revision of a Helm release that is in force; None where there is none."""
    return revision(kube, namespace, f"owner=helm,name={name},status=deployed")


def revision(kube: KubeReader, namespace: str, labels: str) -> Revision | None:
    """The newest of the stored revisions with these labels."""
    found = kube.list(f"/api/v1/namespaces/{namespace}/secrets", Secret, labels=labels, fields="type=helm.sh/release.v1") or ()
    numbered = [(int(one.metadata.labels.get("version", "0")), one) for one in found]
    if not numbered:
        return None
    number, secret = max(numbered, key=lambda entry: entry[0])
    kept = stored(secret.data.get("release", ""))
    return Revision(
        number=number,
        status=secret.metadata.labels.get("status", ""),
        chart_version=kept.chart.metadata.version,
        description=kept.info.description[:500],
    )


def stored(data: str) -> Stored:
    """What a release Secret holds: base64 (Kubernetes) of base64 (Helm) of gzip of JSON; empty fields where it is none of that."""
    try:
        packed = base64.b64decode(base64.b64decode(data, validate=True), validate=True)
        text = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
        return msgspec.json.decode(text, type=Stored)
    except (binascii.Error, OSError, EOFError, zlib.error, msgspec.MsgspecError):
        return Stored()


def _workloads(kube: KubeReader, release: Release) -> tuple[tuple[Workload, ...], tuple[Trouble, ...]]:
    """The release's own workloads (not those that its operator makes), and what keeps their namespace's pods from being ready."""
    owned = workloads.read(kube, release.namespace, lambda raw: _belongs(raw.metadata, release.name))
    if all(entry.settled() for entry in owned):
        return owned, ()
    names = {entry.name for entry in owned}
    pods = [
        pod for pod in workloads.pods(kube, release.namespace) if any(pod.metadata.name.startswith(f"{name}-") for name in names)
    ]
    return owned, workloads.troubles(pods)


def _belongs(meta: workloads.Meta, name: str) -> bool:
    """Whether a chart brought this object: an operator's own workloads have an owner, or no mark of the release."""
    if any(owner.controller for owner in meta.owner_references):
        return False
    marks = (
        meta.annotations.get(RELEASE_NAME),
        meta.labels.get(TRACKING[1]),
        meta.annotations.get(TRACKING[0], "").partition(":")[0],
    )
    return name in marks
