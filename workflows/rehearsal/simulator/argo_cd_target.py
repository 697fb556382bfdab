"""What the simulated Argo CD makes of one Application: what it should bring, whether that is there, and what is in the way."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from steps.contract.canonical import digest
from workflows.rehearsal.simulator import argo_cd_source
from workflows.rehearsal.simulator.argo_cd_install import CONFIG
from workflows.rehearsal.simulator.argo_cd_source import GENERATION, Repositories, SourceError
from workflows.rehearsal.simulator.charts import ChartError, Release, installer
from workflows.rehearsal.simulator.cluster import contains
from workflows.rehearsal.simulator.kinds import (
    APP_PROJECTS,
    APPLICATIONS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    Kind,
    Obj,
    Ref,
    ref,
)
from workflows.rehearsal.simulator.world import World

TRACKING, WAVE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/sync-wave"
INSTALLED = "simulated/installed"
"""Annotation with the digest of what an Application has brought: the live state is not compared field by field."""
HEALTH_KEY = "resource.customizations.health.argoproj.io_Application"
"""Without this key in argocd-cm an Application has no health, and waves do not wait for it (gpu_stack §6.2)."""
VICTIM = "cert-manager"
"""The release that faults of a single Application hit."""
_WORST = ("Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown")


@dataclass(frozen=True, kw_only=True)
class Target:
    """`conditions` are errors, which leave everything as it is; `synced`: the live state is as wanted, else `act` brings the next
    part of it (None while `waiting` for something); `failed` is why the last sync did not work, with the resource to blame."""

    revisions: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    synced: bool = False
    act: Callable[[], None] | None = None
    waiting: str = ""
    failed: tuple[str, Obj] | None = None
    resources: tuple[Obj, ...] = ()
    health: str = "Healthy"


def of(world: World, repositories: Repositories, app: Obj) -> Target:
    """The target of an Application, root or release."""
    if (refused := _refused(world, app)) is not None:
        return Target(conditions=(("InvalidSpecError", refused),))
    sources = _sources(app)
    try:
        if any(source.get("chart") for source in sources):
            return _of_release(world, repositories, app, sources)
        return _of_root(world, repositories, app, sources[0])
    except SourceError as error:
        return Target(conditions=(("ComparisonError", str(error)),))


def _sources(app: Obj) -> Sequence[Obj]:
    spec = app["spec"]
    return spec.get("sources") or [spec["source"]]


def _refused(world: World, app: Obj) -> str | None:
    """Why its AppProject does not let it, in the controller's words."""
    spec, name = app["spec"], app["spec"].get("project", "default")
    project = world.find(APP_PROJECTS, name, app["metadata"]["namespace"])
    if project is None:
        return f"Application referencing project {name} which does not exist"
    allowed = project["spec"]
    for source in _sources(app):
        if not any(fnmatch.fnmatchcase(source["repoURL"], one) for one in allowed.get("sourceRepos") or ()):
            return f"application repo {source['repoURL']} is not permitted in project '{name}'"
    target = spec["destination"]
    fits = (
        fnmatch.fnmatchcase(target["server"], one.get("server", "*")) and fnmatch.fnmatchcase(target["namespace"], one["namespace"])
        for one in allowed.get("destinations") or ()
    )
    forbidden = world.fault("app_project_forbids") and app["metadata"]["name"] == VICTIM
    if forbidden or not any(fits):
        place = f"server '{target['server']}' and namespace '{target['namespace']}'"
        return f"application destination {place} do not match any of the allowed destinations in project '{name}'"
    return None


# ---- a root --------------------------------------------------------------------------------------------------------------------


def _of_root(world: World, repositories: Repositories, app: Obj, source: Obj) -> Target:
    if world.fault("git_credentials_refused"):
        raise SourceError(f"failed to list refs: authentication required: {source['repoURL']}")
    commit = repositories.commit(source["repoURL"], source["targetRevision"])
    wanted = list(argo_cd_source.applications(repositories.files(source["repoURL"], commit), source["path"]))
    if world.fault("root_lacks_child"):
        wanted = wanted[:-1]
    pairs = [(child, world.find(APPLICATIONS, *reversed(_place(child)))) for child in wanted]
    act, waiting = _next_wave(world, app, pairs)
    stale = _stale(world, app, {_place(child) for child in wanted})
    if act is None and stale:
        act = functools.partial(_delete, world, stale)
    synced = not stale and all(live is not None and _fits(app, child, live) for child, live in pairs)
    told = _waves_wait(world, app)
    health = _worst(_health(live) for _, live in pairs) if told else "Healthy"
    resources = tuple(_resource(child, live, told) for child, live in pairs)
    done, moved = synced and not waiting, (_moved(world, commit),)
    return Target(revisions=moved, synced=done, act=act, waiting=waiting, resources=resources, health=health)


def _moved(world: World, commit: str) -> str:
    """The commit that the tag means now: another one once somebody has moved it."""
    return hashlib.sha1(f"moved {commit}".encode(), usedforsecurity=False).hexdigest() if world.fault("tag_moved") else commit


def _next_wave(world: World, app: Obj, pairs: Sequence[tuple[Obj, Obj | None]]) -> tuple[Callable[[], None] | None, str]:
    """What brings the first wave that is not there, or what it waits for: a wave waits for the Applications before it."""
    before: list[Obj] = []
    for wave in sorted({_wave(child) for child, _ in pairs}):
        mine = [(child, live) for child, live in pairs if _wave(child) == wave]
        lacking = [child for child, live in mine if live is None or not _fits(app, child, live)]
        if lacking:
            late = [one["metadata"]["name"] for one in before if _health(one) != "Healthy"] if _waves_wait(world, app) else []
            if late:
                return None, f"waiting for healthy state of argoproj.io/Application/{late[0]}"
            return functools.partial(_bring, world, app, lacking), ""
        before += [live for _, live in mine if live is not None]
    return None, ""


def _wave(child: Obj) -> int:
    return int((child["metadata"].get("annotations") or {}).get(WAVE, "0"))


def _waves_wait(world: World, app: Obj) -> bool:
    found = world.find(CONFIG_MAPS, CONFIG, app["metadata"]["namespace"])
    return found is not None and HEALTH_KEY in (found.get("data") or {})


def _tracking(app: Obj, child: Obj) -> dict[str, str]:
    meta = child["metadata"]
    return {TRACKING: f"{app['metadata']['name']}:argoproj.io/Application:{meta['namespace']}/{meta['name']}"}


def _fits(app: Obj, child: Obj, live: Obj) -> bool:
    notes = (child["metadata"].get("annotations") or {}) | _tracking(app, child)
    return bool(live["spec"] == child["spec"]) and contains(live["metadata"].get("annotations") or {}, notes)


def _bring(world: World, app: Obj, children: Iterable[Obj]) -> None:
    for child in children:
        meta = child["metadata"]
        notes = (meta.get("annotations") or {}) | _tracking(app, child)
        world.ensure(APPLICATIONS, {"metadata": meta | {"annotations": notes}, "spec": child["spec"]})


def _stale(world: World, app: Obj, wanted: set[Ref]) -> list[Obj]:
    """Children of this root that Git has no more: they are pruned."""
    mine = f"{app['metadata']['name']}:"
    every = world.objects(APPLICATIONS)
    return [
        one
        for one in every
        if (one["metadata"].get("annotations") or {}).get(TRACKING, "").startswith(mine) and ref(one) not in wanted
    ]


def _delete(world: World, children: Iterable[Obj]) -> None:
    for child in children:
        world.delete(APPLICATIONS, child)


def _place(child: Obj) -> Ref:
    return Ref(child["metadata"]["namespace"], child["metadata"]["name"])


def _resource(child: Obj, live: Obj | None, told: bool) -> Obj:
    """Its health too where it has one: a real Argo CD keeps it where `controller.resource.health.persist` is set, as we set it."""
    at = _place(child)
    status = "OutOfSync" if live is None else "Synced"
    health: Obj = {"health": {"status": _health(live)}} if told else {}
    return {
        "group": "argoproj.io",
        "version": "v1alpha1",
        "kind": "Application",
        "namespace": at.namespace,
        "name": at.name,
        "status": status,
        **health,
    }


def _health(live: Obj | None) -> str:
    return "Missing" if live is None else str(((live.get("status") or {}).get("health") or {}).get("status") or "Progressing")


def _worst(found: Iterable[str]) -> str:
    return max(found, key=_WORST.index, default="Healthy")


# ---- a release -----------------------------------------------------------------------------------------------------------------


class Rendered(Release):
    """A chart as Argo CD brings it: rendered by Helm, applied by the controller, no release Secret, marked by tracking id."""

    def marks(self, kind: Kind, obj: Obj) -> dict[str, str]:
        """The annotation by which Argo CD knows its objects."""
        meta = obj["metadata"]
        where = f"{kind.group}/{kind.kind}:{meta.get('namespace', self.namespace if kind.namespaced else '')}/{meta['name']}"
        return {TRACKING: f"{self.name}:{where}"}


def _of_release(world: World, repositories: Repositories, app: Obj, sources: Sequence[Obj]) -> Target:
    chart = next(source for source in sources if source.get("chart"))
    name, helm = app["metadata"]["name"], chart.get("helm") or {}
    revisions, files = [str(chart["targetRevision"])], {}
    for source in (one for one in sources if one is not chart):
        commit = repositories.commit(source["repoURL"], source["targetRevision"])
        revisions.append(_moved(world, commit))
        files = dict(repositories.files(source["repoURL"], commit))
    values = argo_cd_source.values(files, helm)
    if name == VICTIM and world.fault("manifest_generation_error"):
        raise SourceError(
            f"failed to execute helm template command: execution error at ({name}/templates/_helpers.tpl:4:3): {name}: bad value", 2
        )
    wanted = digest([app["spec"], values])
    settled = (app["metadata"].get("annotations") or {}).get(INSTALLED) == wanted
    body = {"metadata": {"name": helm.get("releaseName") or name, "namespace": app["metadata"]["namespace"]}}
    spec = {"chart": chart["chart"], "version": chart["targetRevision"], "targetNamespace": app["spec"]["destination"]["namespace"]}
    release = Rendered(world, body | {"spec": spec}, values)
    drifts = settled and name == VICTIM and world.fault("argo_cd_drift") is not None
    return Target(
        revisions=tuple(revisions),
        synced=settled and not drifts,
        act=None if settled else functools.partial(_install, world, ref(app), release, wanted),
        waiting="drift" if drifts else "",
        health=_workload_health(world, release.name, release.namespace) if settled else "Missing",
        resources=(
            {"kind": "Namespace", "version": "v1", "name": release.namespace, "status": "Synced"},
            *(_workload_resource(kind, one) for kind, one in _workloads(world, release.name, release.namespace) if settled),
        ),
    )


def _install(world: World, at: Ref, release: Release, wanted: str) -> None:
    """Apply what the chart renders. Raises ChartError as Helm or the API server tells it."""
    release.target(create=True)
    installer(release)(world, release)
    world.patch(APPLICATIONS, at, {"metadata": {"annotations": {INSTALLED: wanted}}})


def failure(error: ChartError) -> Target:
    """What an install that went wrong shows: an unknown kind fails the sync, all else is a chart that cannot be rendered."""
    text = str(error)
    if "no matches for kind" in text:
        kind = text.partition('no matches for kind "')[2].partition('"')[0]
        group = text.partition('in version "')[2].partition("/")[0]
        blamed = {"kind": kind, "name": kind.lower(), "status": "SyncFailed"}
        said = f'The Kubernetes API could not find {group}/{kind} for requested resource. Make sure the "{kind}" CRD is installed'
        return Target(failed=("one or more synchronization tasks are not valid", blamed | {"message": said}))
    return Target(conditions=(("ComparisonError", GENERATION.format(of=2, why=f"failed to execute helm command: {text}")),))


def _workload_health(world: World, release: str, namespace: str) -> str:
    """Of the chart's own workloads; what operators make besides has no health here, like most custom resources."""
    return _worst(_health_of(one) for _, one in _workloads(world, release, namespace))


def _workloads(world: World, release: str, namespace: str) -> list[tuple[Kind, Obj]]:
    labels = {"app.kubernetes.io/instance": release, "app.kubernetes.io/managed-by": "Helm"}
    kinds = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
    return [(kind, one) for kind in kinds for one in world.select(kind, namespace, labels)]


def _workload_resource(kind: Kind, one: Obj) -> Obj:
    at, health = ref(one), {"status": _health_of(one)}
    about = {"group": kind.group, "version": "v1", "kind": kind.kind, "namespace": at.namespace, "name": at.name}
    return about | {"status": "Synced", "health": health}


def _health_of(workload: Obj) -> str:
    return "Healthy" if _settled(workload) else "Progressing"


def _settled(workload: Obj) -> bool:
    status: dict[str, Any] = workload.get("status") or {}
    wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas", 1))
    seen = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 1)
    return seen and int(status.get("numberReady", status.get("readyReplicas")) or 0) >= int(wanted or 0)
