"""Reads Argo CD Applications and keeps the fields that the chart gate compares.

Fields: https://github.com/argoproj/argo-cd, pkg/apis/application/v1alpha1/types.go.
"""

import datetime
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.objects.charts import AppCondition, Application, FailedResource, UnhealthyResource
from steps.stages.shared.kube_objects import ManagedMeta, spec_change_time
from steps.stages.shared.kube_reader import KubeReader

MESSAGE = 2000
"""Characters kept of a message: the cause stands at the end of the failed command, often after 500 characters."""
SKIP = "argocd.argoproj.io/skip-reconcile"
"""Annotation with which Argo CD leaves an Application alone (https://argo-cd.readthedocs.io/en/stable/user-guide/skip_reconcile/)."""
MOST_FAILURES = 10
MOST_CHILDREN = 100
"""Most child Applications that are kept of a root Application; a stage has a handful."""


class _ApplicationSource(Struct, frozen=True, rename="camel"):
    """A source of an Application: a chart, a folder of a Git repository, or the Git repository of its values."""

    chart: str = ""
    target_revision: str = ""
    repo_url: str = msgspec.field(default="", name="repoURL")
    path: str = ""
    helm: dict[str, Any] = {}


class _Destination(Struct, frozen=True):
    """The cluster, by its address or by its name, and the namespace that an Application writes to."""

    server: str = ""
    name: str = ""
    namespace: str = ""


class _AppSpec(Struct, frozen=True):
    """Project, destination and sources of an Application. Beside several sources, Argo CD writes an empty single one."""

    project: str = ""
    destination: _Destination = _Destination()
    source: _ApplicationSource | None = None
    sources: tuple[_ApplicationSource, ...] = ()

    @property
    def every(self) -> tuple[_ApplicationSource, ...]:
        """Return the sources of the Application, from its list of sources or, without one, from its single source."""
        return self.sources or ((self.source,) if self.source and self.source.repo_url else ())


class _AppSync(Struct, frozen=True, rename="camel"):
    """Comparison with the live state; `compared_to` is the spec that was compared."""

    status: str = ""
    compared_to: _AppSpec = _AppSpec()
    revision: str = ""
    revisions: tuple[str, ...] = ()


class _AppHealth(Struct, frozen=True):
    """Health status of an Application or of one resource."""

    status: str = ""


class _AppResource(Struct, frozen=True, rename="camel"):
    """A resource in the status of an Argo CD Application, or in its last sync.

    `health` is set only for kinds with a health check, and only if Argo CD stores it: `controller.resource.health.persist`, off by
    default since 3.0.
    """

    group: str = ""
    kind: str = ""
    name: str = ""
    status: str = ""
    message: str = ""
    health: _AppHealth | None = None
    hook_type: str = ""
    hook_phase: str = ""

    @property
    def failed(self) -> bool:
        """Return True if the resource was refused, or its hook failed or did not become healthy."""
        return self.status == "SyncFailed" or self.hook_phase in ("Failed", "Error")


class _AppResult(Struct, frozen=True):
    revision: str = ""
    revisions: tuple[str, ...] = ()
    resources: tuple[_AppResource, ...] | None = None


class _AppOperation(Struct, frozen=True, rename="camel"):
    """The last sync of an Application: its phase, message and result."""

    phase: str = ""
    message: str = ""
    sync_result: _AppResult | None = None


class _RawCondition(Struct, frozen=True, rename="camel"):
    type: str
    message: str = ""
    last_transition_time: datetime.datetime | None = None


class _AppStatus(Struct, frozen=True, rename="camel"):
    sync: _AppSync = _AppSync()
    health: _AppHealth = _AppHealth()
    operation_state: _AppOperation | None = None
    conditions: tuple[_RawCondition, ...] | None = None
    reconciled_at: datetime.datetime | None = None
    resources: tuple[_AppResource, ...] | None = None


class RawApplication(Struct, frozen=True):
    """An Application as the API returns it."""

    metadata: ManagedMeta = ManagedMeta()
    spec: _AppSpec = _AppSpec()
    status: _AppStatus = _AppStatus()


def read(kube: KubeReader, namespace: str, name: str) -> Application | None:
    """Return the Application of this name; None if it does not exist."""
    raw = kube.get(f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/applications/{name}", RawApplication)
    return application(raw) if raw else None


def application(raw: RawApplication) -> Application:
    """Return an Application with only the fields that the gate compares."""
    sources = raw.spec.every
    chart = next((source for source in sources if source.chart), _ApplicationSource())
    git = next((source for source in sources if not source.chart), _ApplicationSource())
    status, operation = raw.status, raw.status.operation_state or _AppOperation()
    result = operation.sync_result or _AppResult()
    bad = (resource for resource in result.resources or () if resource.failed)
    return Application(
        project=raw.spec.project,
        server=raw.spec.destination.server or raw.spec.destination.name,
        namespace=raw.spec.destination.namespace,
        chart=chart.chart,
        chart_repo=chart.repo_url,
        # a chart with values from Git has two sources: the chart and the repository of the values
        version=chart.target_revision,
        revision=git.target_revision,
        repo=git.repo_url,
        path=git.path,
        children=tuple(resource.name for resource in status.resources or () if resource.kind == "Application")[:MOST_CHILDREN],
        changed=spec_change_time(raw.metadata),
        reconciled=_reconciled(status, sources),
        paused=raw.metadata.annotations.get(SKIP, "") == "true",
        sync=status.sync.status,
        health=status.health.status,
        unhealthy=_unhealthy(status.resources or ()),
        phase=operation.phase,
        message=operation.message[:MESSAGE],
        # Argo CD fills `revisions` for several sources and `revision` for a single one
        revisions=status.sync.revisions or tuple(filter(None, (status.sync.revision,))),
        synced_revisions=result.revisions or tuple(filter(None, (result.revision,))),
        conditions=tuple(AppCondition(type=row.type, message=row.message[:MESSAGE]) for row in status.conditions or ()),
        failures=tuple(map(_failure, bad))[:MOST_FAILURES],
    )


def _unhealthy(resources: tuple[_AppResource, ...]) -> tuple[UnhealthyResource, ...] | None:
    """Return every unhealthy resource of an Application; None if no resource has a health.

    The result is never cut, because the last entry may be the cause.
    """
    healths = [(resource, resource.health.status) for resource in resources if resource.health is not None]
    bad = ((resource, health) for resource, health in healths if health != "Healthy")
    unhealthy = (
        UnhealthyResource(kind=f"{resource.group}/{resource.kind}".strip("/"), name=resource.name, health=health)
        for resource, health in bad
    )
    return tuple(unhealthy) if healths else None


def _failure(resource: _AppResource) -> FailedResource:
    """Return a resource that failed in a sync. Every applied object has a `hookPhase`; only a hook has a `hookType`."""
    phase = resource.hook_phase if resource.hook_type else ""
    return FailedResource(
        kind=resource.kind, name=resource.name, status=resource.status, message=resource.message[:MESSAGE], hook_phase=phase
    )


def _reconciled(status: _AppStatus, sources: tuple[_ApplicationSource, ...]) -> float:
    """Return when Argo CD last reconciled the Application, in seconds since the epoch.

    Return 0 if its status is about other sources than those of the spec. For a refused spec Argo CD writes a condition, but neither
    `reconciledAt` nor `comparedTo`, so that condition's time counts too.
    """
    compared = status.sync.compared_to.every
    # the status describes an older spec until the next comparison
    if compared and compared != sources:
        return 0.0
    refused = (condition.last_transition_time for condition in status.conditions or () if condition.type == "InvalidSpecError")
    return max((time.timestamp() for time in (status.reconciled_at, *refused) if time), default=0.0)
