"""A simulated Argo CD: its installation, and the controller that syncs Applications from the rehearsal's Git repositories.

A root Application creates the Applications that its folder in Git lists; any other Application installs a chart.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from steps.contract.canonical import digest
from workflows.rehearsal.simulator.api.api_kinds import (
    APP_PROJECTS,
    APPLICATIONS,
    CLAIMS,
    CONFIG_MAPS,
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    STATEFUL_SETS,
    Obj,
    Ref,
    definitions,
    ref,
)
from workflows.rehearsal.simulator.api.cluster_view import contains
from workflows.rehearsal.simulator.charts import argo_cd_target
from workflows.rehearsal.simulator.charts.argo_cd_target import CONFIG, Repositories, SyncTarget
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease, chart
from workflows.rehearsal.simulator.controllers.simulated_pods import blocked_by
from workflows.rehearsal.simulator.machines.simulated_fleet import SiteArgoCd
from workflows.rehearsal.simulator.virtual_clock import parse_stamp, stamp
from workflows.rehearsal.simulator.world import Changes, World

_TIMES = frozenset({"startedAt", "finishedAt", "lastTransitionTime", "reconciledAt"})
RETRY_SECONDS = 60.0
"""Virtual seconds between two tries of a failed sync. The real back-off grows from 10 s to 3 minutes."""


class _Failed(NamedTuple):
    """Failed syncs of an Application: digest of its spec, last result, number of tries. `due` allows the next try."""

    spec: str
    target: SyncTarget
    tries: int
    due: bool = False


class ArgoCdController:
    """Simulated application controller and repo server of Argo CD.

    Git servers are the rehearsal's own repositories, and a chart installs what the simulated Helm installs. Patches of Kustomize
    overlays are not played, and live objects are not compared field by field.
    """

    name = "argo_cd"
    kinds = (APPLICATIONS, APP_PROJECTS, CLAIMS, CONFIG_MAPS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, NODES)

    def __init__(self) -> None:
        self._repositories: Repositories | None = None
        self._failures: dict[Ref, _Failed] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Schedule the next status write or sync of every Application, of which there are about a dozen."""
        if self._repositories is None:
            self._repositories = Repositories(world.git_root)
        if world.fleet.argo_cd is not None and world.objects(NODES):
            install_site_argo_cd(world, world.fleet.argo_cd)
        if changed.everything:
            for at in tuple(self._failures):
                self._again(world, at)
        if not world.served(APPLICATIONS) or world.fault("argo_cd_stands_still"):
            return
        _overwrite_config(world)
        _take_over(world)
        for app in world.objects(APPLICATIONS):
            if controller_runs(world, app["metadata"]["namespace"]):
                self._look(world, app)

    def _look(self, world: World, app: Obj) -> None:
        at, target = ref(app), self._target(world, app)
        status = _status(world, app, target)
        if not _shows(app, status):
            key = f"argo_cd/{at.name}/status/{digest(_timeless(status))}"
            world.later(key, 1, 4, functools.partial(self._write, world, at))
        elif target.act is not None and (app["status"].get("operationState") or {}).get("phase") == "Running":
            key = f"argo_cd/{at.name}/sync/{digest([target.revisions, app['spec']])}"
            world.later(key, 3, 12, functools.partial(self._sync, world, at))

    def _target(self, world: World, app: Obj) -> SyncTarget:
        """Return the Application's sync target, or the result of its last failed sync until the next try is allowed."""
        failure = self._failures.get(ref(app))
        if failure is not None and failure.spec == digest(app["spec"]) and not failure.due:
            return failure.target
        assert self._repositories is not None
        return argo_cd_target.sync_target(world, self._repositories, app)

    def _write(self, world: World, at: Ref) -> None:
        app = world.find(APPLICATIONS, at)
        if app is not None:
            status = _status(world, app, self._target(world, app))
            world.patch(APPLICATIONS, at, {"status": status | {"reconciledAt": _now(world)}})

    def _sync(self, world: World, at: Ref) -> None:
        app = world.find(APPLICATIONS, at)
        target = self._target(world, app) if app is not None else SyncTarget()
        if app is None or target.act is None:
            return
        try:
            target.act()
        except ChartError as error:
            spec, before = digest(app["spec"]), self._failures.get(at)
            tries = before.tries if before is not None and before.spec == spec else 0
            self._failures[at] = _Failed(spec, argo_cd_target.failure(error), tries + 1)
            world.later(f"argo_cd/{at.name}/again", RETRY_SECONDS, RETRY_SECONDS, functools.partial(self._again, world, at))
        else:
            self._failures.pop(at, None)
        world.touch(APPLICATIONS, at)

    def _again(self, world: World, at: Ref) -> None:
        """Allow another try of a failed sync, unless the Application's `syncPolicy.retry.limit` is used up."""
        failure, app = self._failures.get(at), world.find(APPLICATIONS, at)
        if failure is None or app is None:
            return
        # A negative limit means without end, and Argo CD's default is never.
        retries = int(((app["spec"].get("syncPolicy") or {}).get("retry") or {}).get("limit", 0))
        given_up = failure.target.failed is not None and failure.spec == digest(app["spec"]) and 0 <= retries < failure.tries
        if not given_up and not failure.due:
            self._failures[at] = failure._replace(due=True)
            world.touch(APPLICATIONS, at)


def _now(world: World) -> str:
    """Return the later of virtual and real time as a timestamp, because `reconciledAt` is compared with real times."""
    return stamp(max(world.now, time.time()))


def _status(world: World, app: Obj, target: SyncTarget) -> Obj:
    """Return the status that Argo CD would write now, without `reconciledAt`. A time in it moves only with what it dates."""
    before = app.get("status") or {}
    compared = {"comparedTo": {key: app["spec"][key] for key in ("source", "sources", "destination") if key in app["spec"]}}
    if target.conditions:
        present = before.get("conditions") or ()
        transitions = {(entry["type"], entry["message"]): entry["lastTransitionTime"] for entry in present}
        conditions = [
            {"type": kind, "message": text, "lastTransitionTime": transitions.get((kind, text)) or _now(world)}
            for kind, text in target.conditions
        ]
        # Without resources to judge, the real controller reports Healthy too.
        health = (before.get("health") or {}).get("status") or "Healthy"
        return {"sync": {"status": "Unknown", **compared}, "health": {"status": health}, "conditions": conditions}
    shown = {"revisions": list(target.revisions)} if len(target.revisions) > 1 else {"revision": "".join(target.revisions)}
    return {
        "sync": {"status": "Synced" if target.synced else "OutOfSync", **compared, **shown},
        "health": {"status": target.health},
        "conditions": [],
        "resources": list(target.resources),
        "operationState": _operation(world, before.get("operationState") or {}, target, shown),
    }


def _operation(world: World, before: Obj, target: SyncTarget, shown: Obj) -> Obj:
    """Return the Application's `operationState`: failed, succeeded or running.

    No new sync is started if nothing differs, even if the Git revision is a new one.
    """
    if target.failed is not None:
        text, blamed = target.failed
        return _ended(world, before, "Failed", text, {**shown, "resources": [blamed]})
    if target.synced or target.waiting == "drift":
        if before.get("phase") == "Succeeded":
            return before
        resources = [
            {key: value for key, value in resource.items() if key != "status"} | {"status": "Synced"}
            for resource in target.resources
        ]
        return _ended(world, before, "Succeeded", "successfully synced (all tasks run)", {**shown, "resources": resources})
    started = before.get("startedAt") if before.get("phase") == "Running" else None
    message = target.waiting or "waiting for completion of hooks"
    return {"phase": "Running", "message": message, "startedAt": started or _now(world), "finishedAt": None, "syncResult": None}


def _ended(world: World, before: Obj, phase: str, message: str, result: Obj) -> Obj:
    same = before.get("phase") == phase and before.get("message") == message
    return {
        "phase": phase,
        "message": message,
        "startedAt": before.get("startedAt") or _now(world),
        "finishedAt": before["finishedAt"] if same else _now(world),
        "syncResult": result,
    }


def _shows(app: Obj, status: Obj) -> bool:
    """Return True if the Application shows this status already, written after its spec last changed."""
    present = app.get("status") or {}
    looked = parse_stamp(present["reconciledAt"]) if "reconciledAt" in present else 0.0
    return contains(_timeless(present), _timeless(status)) and looked + 1 >= _changed(app)


def _timeless(value: Any) -> Any:
    """Return a copy of a status without its time fields, for comparing two statuses."""
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in _TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _changed(app: Obj) -> float:
    """Return when a client that writes no status last wrote the Application's spec, in seconds since the epoch; 0 if none did."""
    entries = [entry for entry in app["metadata"].get("managedFields") or () if "f:spec" in (entry.get("fieldsV1") or {})]
    return max((parse_stamp(entry["time"]) for entry in entries if "f:status" not in entry["fieldsV1"]), default=0.0)


def _overwrite_config(world: World) -> None:
    """Play the fault `argocd_cm_overwritten`: remove our keys from the ConfigMap argocd-cm as soon as they appear."""
    if world.fault("argocd_cm_overwritten"):
        for config in world.objects(CONFIG_MAPS):
            ours = [key for key in config.get("data") or {} if key.startswith("resource.customizations.")]
            if ours and config["metadata"]["name"] == CONFIG:
                world.patch(CONFIG_MAPS, config, {"data": dict.fromkeys(ours)})


def _take_over(world: World) -> None:
    """Play the fault `helm_beside_argo_cd`: `helm upgrade --install --take-ownership` of a release that Argo CD installed."""
    deployment = world.find(DEPLOYMENTS, Ref(argo_cd_target.VICTIM, argo_cd_target.VICTIM))
    if deployment is not None and world.fault("helm_beside_argo_cd"):
        marks = {"meta.helm.sh/release-name": argo_cd_target.VICTIM, "meta.helm.sh/release-namespace": argo_cd_target.VICTIM}
        world.patch(DEPLOYMENTS, deployment, {"metadata": {"annotations": marks}})


ROLES = (ArgoCdController,)


GROUP = "argoproj.io"
PART_OF, COMPONENT = "app.kubernetes.io/part-of", "app.kubernetes.io/component"
CONTROLLER = "application-controller"
APP_VERSIONS = {"10.1.1": "v3.4.4"}
"""Version of Argo CD by version of the chart argo-cd (https://github.com/argoproj/argo-helm)."""
HOST_KEYS, CERTIFICATES = "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm"
_COMPONENTS = (CONTROLLER, "applicationset-controller", "redis", "repo-server", "server")


@chart("argo-cd")
def argo_cd(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart argo-cd: CRDs, workloads named by `fullnameOverride`, and `configs.cm` as argocd-cm."""
    release.crds(GROUP, "Application", "AppProject", "ApplicationSet")
    prefix = release.value("fullnameOverride") or f"{release.name}-argocd"
    for kind, body in _workloads(prefix, APP_VERSIONS.get(release.version, f"v{release.version}")):
        release.put(DEPLOYMENTS if kind == "Deployment" else STATEFUL_SETS, body)
    for config in _settings(release.value("configs.cm", {})):
        release.put(CONFIG_MAPS, config)


def install_site_argo_cd(world: World, own: SiteArgoCd) -> None:
    """Create the Argo CD that the site already runs, as if its administrators had applied its manifest with kubectl."""
    for kind in ("Application", "AppProject", "ApplicationSet"):
        for definition in definitions(GROUP, kind):
            world.ensure(CRDS, definition)
    world.create(NAMESPACES, {"metadata": {"name": own.namespace}})
    version = own.version if own.version.count(".") == 2 else f"{own.version}.4"
    for kind, body in _workloads("argocd", f"v{version}"):
        meta = body["metadata"] | {"namespace": own.namespace}
        world.ensure(DEPLOYMENTS if kind == "Deployment" else STATEFUL_SETS, body | {"metadata": meta})
    for config in _settings({}):
        world.create(CONFIG_MAPS, config | {"metadata": config["metadata"] | {"namespace": own.namespace}})


def _settings(keys: Mapping[str, str]) -> list[Obj]:
    """Return the ConfigMap argocd-cm with `keys`, and empty ConfigMaps for SSH host keys and TLS certificates."""
    every = {
        CONFIG: {"application.resourceTrackingMethod": "annotation", **keys},
        HOST_KEYS: {"ssh_known_hosts": ""},
        CERTIFICATES: {},
    }
    return [{"metadata": {"name": name, "labels": {PART_OF: "argocd"}}, "data": data} for name, data in every.items()]


def _workloads(prefix: str, version: str) -> list[tuple[str, Obj]]:
    workloads = []
    for component in _COMPONENTS:
        name = f"{prefix}-{component}"
        image = "redis:8.2.3-alpine" if component == "redis" else f"quay.io/argoproj/argocd:{version}"
        labels = {PART_OF: "argocd", COMPONENT: component, "app.kubernetes.io/name": f"argocd-{component}"}
        pod = {"metadata": {"labels": {"app": name, **labels}}, "spec": {"containers": [{"name": component, "image": image}]}}
        spec: Obj = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": pod}
        kind = "StatefulSet" if component == CONTROLLER else "Deployment"
        workloads.append((kind, {"metadata": {"name": name, "labels": labels}, "spec": spec}))
    return workloads


def controller_runs(world: World, namespace: str) -> bool:
    """Return True if Argo CD's application controller is ready in this namespace; without it no Application is reconciled."""
    controllers = world.select(STATEFUL_SETS, namespace, {PART_OF: "argocd", COMPONENT: CONTROLLER})
    return any((controller.get("status") or {}).get("readyReplicas") for controller in controllers)


blocked_by("argo_cd_controller_down", COMPONENT, CONTROLLER, f"back-off 5m0s restarting failed container={CONTROLLER}")
