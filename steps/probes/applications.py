"""Reads Argo CD Applications down to what the chart gate compares (gpu_stack §6.2)."""

import datetime
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.charts import AppCondition, Application, FailedResource, UnhealthyResource
from steps.probes.managed import Meta, spec_changed
from steps.probes.reader import KubeReader

MESSAGE = 2000
"""Characters kept of a message: the cause stands at the end of the command that failed, often after 500."""
MOST_FAILURES = 10
MOST_CHILDREN = 100
"""Children named of a root: a stage has a handful."""


class Source(Struct, frozen=True, rename="camel"):
    """One source of an Application: a chart, or a folder of a Git repository, or the Git repository of its values."""

    chart: str = ""
    target_revision: str = ""
    repo_url: str = msgspec.field(default="", name="repoURL")
    path: str = ""
    helm: dict[str, Any] = {}


class Destination(Struct, frozen=True):
    """The cluster, by its address or by its name, and the namespace that an Application writes to."""

    server: str = ""
    name: str = ""
    namespace: str = ""


class AppSpec(Struct, frozen=True):
    """An Application's sources, as they are wanted or were compared; Argo CD writes an empty one beside several."""

    project: str = ""
    destination: Destination = Destination()
    source: Source | None = None
    sources: tuple[Source, ...] = ()

    @property
    def every(self) -> tuple[Source, ...]:
        """One or several."""
        return self.sources or ((self.source,) if self.source and self.source.repo_url else ())


class AppSync(Struct, frozen=True, rename="camel"):
    """Comparison with the live state; `compared_to` is the spec that it is about."""

    status: str = ""
    compared_to: AppSpec = AppSpec()
    revision: str = ""
    revisions: tuple[str, ...] = ()


class AppHealth(Struct, frozen=True):
    """Health."""

    status: str = ""


class AppResource(Struct, frozen=True, rename="camel"):
    """One resource of an Application or of its last sync. `health` is kept for kinds that have one, and only where Argo CD is
    told to keep it: `controller.resource.health.persist`, since 3.0 off (gpu_stack §6.2)."""

    group: str = ""
    kind: str = ""
    name: str = ""
    status: str = ""
    message: str = ""
    health: AppHealth | None = None
    hook_type: str = ""
    hook_phase: str = ""

    @property
    def failed(self) -> bool:
        """Whether it was refused, did not get healthy, or is a hook that failed."""
        return self.status == "SyncFailed" or self.hook_phase in ("Failed", "Error")


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


class RawCondition(Struct, frozen=True, rename="camel"):
    """One condition with its time."""

    type: str
    message: str = ""
    last_transition_time: datetime.datetime | None = None


class AppStatus(Struct, frozen=True, rename="camel"):
    """An Application's status."""

    sync: AppSync = AppSync()
    health: AppHealth = AppHealth()
    operation_state: AppOperation | None = None
    conditions: tuple[RawCondition, ...] | None = None
    reconciled_at: datetime.datetime | None = None
    resources: tuple[AppResource, ...] | None = None


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
    sources = raw.spec.every
    chart = next((source for source in sources if source.chart), Source())
    git = next((source for source in sources if not source.chart), Source())
    status, operation = raw.status, raw.status.operation_state or AppOperation()
    result = operation.sync_result or AppResult()
    bad = (one for one in result.resources or () if one.failed)
    return Application(
        project=raw.spec.project,
        server=raw.spec.destination.server or raw.spec.destination.name,
        namespace=raw.spec.destination.namespace,
        chart=chart.chart,
        chart_repo=chart.repo_url,
        version=chart.target_revision,
        revision=git.target_revision,
        repo=git.repo_url,
        path=git.path,
        children=tuple(one.name for one in status.resources or () if one.kind == "Application")[:MOST_CHILDREN],
        changed=spec_changed(raw.metadata),
        reconciled=_reconciled(status, sources),
        sync=status.sync.status,
        health=status.health.status,
        unhealthy=_unhealthy(status.resources or ()),
        phase=operation.phase,
        message=operation.message[:MESSAGE],
        revisions=status.sync.revisions or tuple(filter(None, (status.sync.revision,))),
        synced_revisions=result.revisions or tuple(filter(None, (result.revision,))),
        conditions=tuple(AppCondition(type=one.type, message=one.message[:MESSAGE]) for one in status.conditions or ()),
        failures=tuple(map(_failure, bad))[:MOST_FAILURES],
    )


def _unhealthy(resources: tuple[AppResource, ...]) -> tuple[UnhealthyResource, ...] | None:
    """All of them: one that was cut off could be the one that matters. None where no resource has a health."""
    told = [(one, one.health.status) for one in resources if one.health is not None]
    bad = ((one, health) for one, health in told if health != "Healthy")
    found = (UnhealthyResource(kind=f"{one.group}/{one.kind}".strip("/"), name=one.name, health=health) for one, health in bad)
    return tuple(found) if told else None


def _failure(one: AppResource) -> FailedResource:
    """Every applied object has a `hookPhase`; only a hook has a type."""
    phase = one.hook_phase if one.hook_type else ""
    return FailedResource(kind=one.kind, name=one.name, status=one.status, message=one.message[:MESSAGE], hook_phase=phase)


def _reconciled(status: AppStatus, sources: tuple[Source, ...]) -> float:
    """When Argo CD last looked; 0 where what it says is about other sources than those of now, however young it is.

    A spec that it refuses gets a condition, but neither `reconciledAt` nor `comparedTo`.
    """
    compared = status.sync.compared_to.every
    if compared and compared != sources:
        return 0.0
    refused = (one.last_transition_time for one in status.conditions or () if one.type == "InvalidSpecError")
    return max((time.timestamp() for time in (status.reconciled_at, *refused) if time), default=0.0)
