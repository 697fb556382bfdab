"""Reads Argo CD Applications down to what the chart gate compares (gpu_stack §6.2)."""

import datetime

import msgspec
from msgspec import Struct

from steps.contract.charts import AppCondition, Application, FailedResource
from steps.probes.managed import Meta, spec_changed
from steps.probes.reader import KubeReader


class Source(Struct, frozen=True, rename="camel"):
    """One source of an Application: a chart, or the Git repository of its values."""

    chart: str = ""
    target_revision: str = ""


class AppSpec(Struct, frozen=True):
    """An Application's sources."""

    source: Source | None = None
    sources: tuple[Source, ...] = ()


class AppSync(Struct, frozen=True):
    """Comparison with the live state."""

    status: str = ""
    revision: str = ""
    revisions: tuple[str, ...] = ()


class AppHealth(Struct, frozen=True):
    """Health."""

    status: str = ""


class AppResource(Struct, frozen=True, rename="camel"):
    """One resource of a sync."""

    kind: str = ""
    name: str = ""
    status: str = ""
    message: str = ""
    hook_phase: str = ""


class AppResult(Struct, frozen=True):
    """Result of a sync."""

    revision: str = ""
    revisions: tuple[str, ...] = ()
    resources: tuple[AppResource, ...] | None = None


class AppOperation(Struct, frozen=True, rename="camel"):
    """The last sync."""

    phase: str = ""
    message: str = ""
    sync_result: AppResult | None = None


class AppStatus(Struct, frozen=True, rename="camel"):
    """An Application's status."""

    sync: AppSync = AppSync()
    health: AppHealth = AppHealth()
    operation_state: AppOperation | None = None
    conditions: tuple[AppCondition, ...] | None = None
    reconciled_at: datetime.datetime | None = None


class RawApplication(Struct, frozen=True):
    """An Application as the API returns it."""

    metadata: Meta = Meta()
    spec: AppSpec = AppSpec()
    status: AppStatus = AppStatus()


def read(kube: KubeReader, namespace: str, name: str) -> Application | None:
    """The Application of a name; None when there is none."""
    found = kube.get(f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/applications/{name}", RawApplication)
    return application(found) if found else None


def application(raw: RawApplication) -> Application:
    """An Application reduced to what the gate compares."""
    sources = raw.spec.sources or ((raw.spec.source,) if raw.spec.source else ())
    charts = [source.target_revision for source in sources if source.chart]
    values = [source.target_revision for source in sources if not source.chart]
    status, operation = raw.status, raw.status.operation_state or AppOperation()
    result = operation.sync_result or AppResult()
    bad = (one for one in result.resources or () if one.status == "SyncFailed" or one.hook_phase in ("Failed", "Error"))
    return Application(
        version=charts[0] if charts else "",
        revision=values[0] if values else "",
        changed=spec_changed(raw.metadata),
        reconciled=status.reconciled_at.timestamp() if status.reconciled_at else 0.0,
        sync=status.sync.status,
        health=status.health.status,
        phase=operation.phase,
        message=operation.message[:500],
        revisions=status.sync.revisions or tuple(filter(None, (status.sync.revision,))),
        synced_revisions=result.revisions or tuple(filter(None, (result.revision,))),
        conditions=tuple(msgspec.structs.replace(one, message=one.message[:500]) for one in status.conditions or ()),
        failures=tuple(
            FailedResource(kind=one.kind, name=one.name, status=one.status, message=one.message[:300], hook_phase=one.hook_phase)
            for one in bad
        )[:10],
    )
