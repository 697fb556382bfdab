"""Sync targets of the simulated Argo CD: what an Application's source in Git asks for, and what still differs in the cluster."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from steps.clients.git import repositories
from steps.clients.git.git_access import GitAccess, local_repository
from steps.contract.canonical import digest
from workflows.rehearsal.simulator.api.api_kinds import (
    APP_PROJECTS,
    APPLICATIONS,
    CLAIMS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    STATEFUL_SETS,
    Obj,
    ObjectKind,
    Ref,
    annotations_of,
    ref,
)
from workflows.rehearsal.simulator.api.cluster_view import contains
from workflows.rehearsal.simulator.charts import wrapper_templates
from workflows.rehearsal.simulator.charts.chart_installers import LOADER, ChartError, ChartRelease, installer
from workflows.rehearsal.simulator.world import World

GENERATION = "Failed to load target state: failed to generate manifest for source 1 of {of}: rpc error: code = Unknown desc = {why}"
"""Argo CD's message if manifests fail to generate, for `of` sources (`steps/docs/facts/argo.md`, Application status)."""

CONFIG = "argocd-cm"


class SourceError(Exception):
    """Raised if an Application's manifests cannot be generated; the text is that of Argo CD's ComparisonError."""

    def __init__(self, why: str, sources: int = 1) -> None:
        super().__init__(GENERATION.format(of=sources, why=why))


class Repositories:
    """Reader of a rehearsal's bare Git repositories. Each tag is resolved once, as only the fault `tag_moved` moves one."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._commits: dict[tuple[str, str], str] = {}
        self._files: dict[tuple[str, str], Mapping[str, str]] = {}

    def commit(self, url: str, revision: str) -> str:
        """Return the commit hash of a branch, tag or commit. Raises SourceError if the repository lacks it."""
        if (url, revision) not in self._commits:
            with repositories.open_repository(self._access(url)) as repo:
                commit = repo.resolve(revision)
            if not commit:
                raise SourceError(f"unable to resolve '{revision}' to a commit SHA")
            self._commits[url, revision] = commit
        return self._commits[url, revision]

    def files(self, url: str, commit: str) -> Mapping[str, str]:
        """Return the texts of all files of a commit by path."""
        if (url, commit) not in self._files:
            with repositories.open_repository(self._access(url)) as repo:
                self._files[url, commit] = repo.read(commit)
        return self._files[url, commit]

    def _access(self, url: str) -> GitAccess:
        if self._root is None:
            raise SourceError(f"failed to list refs: {url}: this rehearsal has no repositories")
        return GitAccess(url=url, local=local_repository(self._root, url))


def applications(files: Mapping[str, str], path: str) -> Iterator[Obj]:
    """Yield the Applications that `kustomization.yaml` in the folder `path` lists under `resources`, in order.

    Patches are not played. Raises SourceError if the folder or a listed file is missing or is no YAML.
    """
    folder = path.strip("/")
    kustomization = files.get(f"{folder}/kustomization.yaml")
    if kustomization is None:
        raise SourceError(f"{folder}: app path does not exist")
    for name in _parsed(kustomization).get("resources") or ():
        text = files.get(f"{folder}/{name}")
        if text is None:
            raise SourceError(
                f"`kustomize build {folder}` failed exit status 1: accumulating resources from '{name}': no such file"
            )
        yield _parsed(text)


def helm_values(files: Mapping[str, str], helm: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Helm values of an Application's source: those of its value files in order, then `valuesObject`.

    Later top-level keys replace earlier ones. `files` holds the files of the source `$values`. Raises SourceError.
    """
    merged: dict[str, Any] = {}
    for name in helm.get("valueFiles") or ():
        path = str(name).partition("/")[2]
        if path not in files:
            raise SourceError(f"failed to execute helm template command: open {path}: no such file or directory", 2)
        merged |= _parsed(files[path])
    return merged | (helm.get("valuesObject") or {})


def _parsed(text: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise SourceError(f"failed to unmarshal manifests: {error}") from error
    return document if isinstance(document, dict) else {}


TRACKING, WAVE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/sync-wave"
INSTALLED = "simulated/installed"
"""Annotation of an Application with the digest of the spec and values that it installed last.

It stands for a comparison of live objects, which is not played.
"""
HEALTH_KEY = "resource.customizations.health.argoproj.io_Application"
"""Key of ConfigMap argocd-cm that gives Applications a health. Without it, sync waves do not wait for Applications.

Argo CD removed this health check in version 1.8: https://argo-cd.readthedocs.io/en/stable/operator-manual/health/
"""
VICTIM = "cert-manager"
"""Name of the Application that is hit by faults of a single Application."""
_WORST = ("Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown")


@dataclass(frozen=True, kw_only=True)
class SyncTarget:
    """The difference between what an Application asks for and what is in the cluster.

    `conditions` are pairs of type and message that keep the Application as it is. Unless `synced`, `act` creates what is missing
    next; `act` is None if `waiting` says what must come first. `failed` is the message of a failed sync and the entry of the
    resource to blame. `health` is the Application's health.
    """

    revisions: tuple[str, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    synced: bool = False
    act: Callable[[], None] | None = None
    waiting: str = ""
    failed: tuple[str, Obj] | None = None
    resources: tuple[Obj, ...] = ()
    health: str = "Healthy"


def sync_target(world: World, repositories: Repositories, app: Obj) -> SyncTarget:
    """Return the sync target of an Application: of a chart, or of a folder in Git."""
    if (refused := _refused(world, app)) is not None:
        return SyncTarget(conditions=(("InvalidSpecError", refused),))
    sources = _sources(app)
    try:
        if any(source.get("chart") for source in sources):
            return _of_release(world, repositories, app, sources)
        return _of_path(world, repositories, app, sources[0])
    except SourceError as error:
        return SyncTarget(conditions=(("ComparisonError", str(error)),))


def _sources(app: Obj) -> Sequence[Obj]:
    spec = app["spec"]
    return spec.get("sources") or [spec["source"]]


def _refused(world: World, app: Obj) -> str | None:
    """Return why the Application's AppProject forbids it, in Argo CD's words; None if it does not."""
    spec, name = app["spec"], app["spec"].get("project", "default")
    project = world.find(APP_PROJECTS, name, app["metadata"]["namespace"])
    if project is None:
        return f"Application referencing project {name} which does not exist"
    allowed = project["spec"]
    for source in _sources(app):
        if not any(fnmatch.fnmatchcase(source["repoURL"], rule) for rule in allowed.get("sourceRepos") or ()):
            return f"application repo {source['repoURL']} is not permitted in project '{name}'"
    target = spec["destination"]
    fits = (
        fnmatch.fnmatchcase(target["server"], rule.get("server", "*"))
        and fnmatch.fnmatchcase(target["namespace"], rule["namespace"])
        for rule in allowed.get("destinations") or ()
    )
    forbidden = world.fault("app_project_forbids") and app["metadata"]["name"] == VICTIM
    if forbidden or not any(fits):
        place = f"server '{target['server']}' and namespace '{target['namespace']}'"
        return f"application destination {place} do not match any of the allowed destinations in project '{name}'"
    return None


# ---- root Applications ---------------------------------------------------------------------------------------------------------


def _of_path(world: World, repositories: Repositories, app: Obj, source: Obj) -> SyncTarget:
    """Return the target of a folder: a chart if it has a Chart.yaml, Applications by a kustomization, else plain objects."""
    if world.fault("git_credentials_refused"):
        raise SourceError(f"failed to list refs: authentication required: {source['repoURL']}")
    commit = repositories.commit(source["repoURL"], source["targetRevision"])
    files, folder = repositories.files(source["repoURL"], commit), source["path"].strip("/")
    if f"{folder}/Chart.yaml" in files:
        return _of_wrapper(world, app, source, files, _moved(world, commit))
    if f"{folder}/kustomization.yaml" in files:
        return _of_root(world, app, source, files, commit)
    return _of_objects(world, app, files, folder, _moved(world, commit))


def _of_root(world: World, app: Obj, source: Obj, files: Mapping[str, str], commit: str) -> SyncTarget:
    wanted = list(applications(files, source["path"]))
    if world.fault("root_lacks_child"):
        wanted = wanted[:-1]
    pairs = [(child, world.find(APPLICATIONS, ref(child))) for child in wanted]
    act, waiting = _next_wave(world, app, pairs)
    stale = _stale(world, app, {ref(child) for child in wanted})
    if act is None and stale:
        act = functools.partial(_delete, world, stale)
    synced = not stale and all(live is not None and _fits(app, child, live) for child, live in pairs)
    waves_wait = _waves_wait(world, app)
    health = _worst(_health(live) for _, live in pairs) if waves_wait else "Healthy"
    resources = tuple(_resource(child, live, waves_wait) for child, live in pairs)
    done, moved = synced and not waiting, (_moved(world, commit),)
    return SyncTarget(revisions=moved, synced=done, act=act, waiting=waiting, resources=resources, health=health)


def _moved(world: World, commit: str) -> str:
    """Return `commit`, or another commit hash while the fault `tag_moved` is active."""
    return hashlib.sha1(f"moved {commit}".encode(), usedforsecurity=False).hexdigest() if world.fault("tag_moved") else commit


def _next_wave(world: World, app: Obj, pairs: Sequence[tuple[Obj, Obj | None]]) -> tuple[Callable[[], None] | None, str]:
    """Return the action that creates the children of the first incomplete sync wave, or None and why that wave must wait.

    `pairs` are a root's Applications in Git, each with its object in the cluster or None. Return None and an empty text if no wave
    is incomplete.
    """
    before: list[Obj] = []
    for wave in sorted({_wave(child) for child, _ in pairs}):
        mine = [(child, live) for child, live in pairs if _wave(child) == wave]
        lacking = [child for child, live in mine if live is None or not _fits(app, child, live)]
        if lacking:
            late = [live["metadata"]["name"] for live in before if _health(live) != "Healthy"]
            if late and _waves_wait(world, app):
                return None, f"waiting for healthy state of argoproj.io/Application/{late[0]}"
            return functools.partial(_bring, world, app, lacking), ""
        before += [live for _, live in mine if live is not None]
    return None, ""


def _wave(child: Obj) -> int:
    return int(annotations_of(child).get(WAVE, "0"))


def _waves_wait(world: World, app: Obj) -> bool:
    config = world.find(CONFIG_MAPS, CONFIG, app["metadata"]["namespace"])
    return config is not None and HEALTH_KEY in (config.get("data") or {})


def _tracking(app: Obj, child: Obj) -> dict[str, str]:
    meta = child["metadata"]
    return {TRACKING: f"{app['metadata']['name']}:argoproj.io/Application:{meta['namespace']}/{meta['name']}"}


def _fits(app: Obj, child: Obj, live: Obj) -> bool:
    notes = annotations_of(child) | _tracking(app, child)
    return bool(live["spec"] == child["spec"]) and contains(live["metadata"].get("annotations") or {}, notes)


def _bring(world: World, app: Obj, children: Iterable[Obj]) -> None:
    for child in children:
        meta = child["metadata"]
        notes = (meta.get("annotations") or {}) | _tracking(app, child)
        world.ensure(APPLICATIONS, {"metadata": meta | {"annotations": notes}, "spec": child["spec"]})


def _delete(world: World, children: Iterable[Obj]) -> None:
    for child in children:
        world.delete(APPLICATIONS, child)


def _stale(world: World, app: Obj, wanted: set[Ref]) -> list[Obj]:
    """Return the Applications in the cluster that this root created and that Git no longer has, so that they are to be deleted."""
    mine = f"{app['metadata']['name']}:"
    own = (child for child in world.objects(APPLICATIONS) if annotations_of(child).get(TRACKING, "").startswith(mine))
    return [child for child in own if ref(child) not in wanted]


def _resource(child: Obj, live: Obj | None, show_health: bool) -> Obj:
    """Return the entry in a root's `status.resources` for one of its Applications; `show_health` adds its health.

    A real Argo CD writes the health there if `controller.resource.health.persist` is set, as our values do.
    """
    at = ref(child)
    about = {"group": "argoproj.io", "version": "v1alpha1", "kind": "Application", "namespace": at.namespace, "name": at.name}
    health: Obj = {"health": {"status": _health(live)}} if show_health else {}
    return about | {"status": "OutOfSync" if live is None else "Synced"} | health


def _health(live: Obj | None) -> str:
    return "Missing" if live is None else str(((live.get("status") or {}).get("health") or {}).get("status") or "Progressing")


def _worst(states: Iterable[str]) -> str:
    return max(states, key=_WORST.index, default="Healthy")


# ---- Applications of plain objects ---------------------------------------------------------------------------------------------

_PLAIN = {kind.kind: kind for kind in (CONFIG_MAPS, CLAIMS)}
"""Kinds that a folder of plain objects may hold here, by name."""


def _of_objects(world: World, app: Obj, files: Mapping[str, str], folder: str, commit: str) -> SyncTarget:
    """Return the target of a folder whose YAML files are objects. As in Argo CD a volume claim is Progressing until it is bound."""
    wanted = [_parsed(text) for path, text in files.items() if path.startswith(f"{folder}/") and path.endswith(".yaml")]
    if not wanted:
        raise SourceError(f"{folder}: app path does not exist")
    if strange := sorted({item["kind"] for item in wanted} - set(_PLAIN)):
        raise SourceError(f"{folder}: {strange[0]} is not played here")
    pairs = [(item, world.find(_PLAIN[item["kind"]], ref(item))) for item in wanted]
    lacking = [item for item, live in pairs if live is None or not _holds(live, item)]
    return SyncTarget(
        revisions=(commit,),
        synced=not lacking,
        act=functools.partial(_put, world, app, lacking) if lacking else None,
        health=_worst(_health_of_plain(live) for _, live in pairs),
        resources=tuple(
            {"kind": item["kind"], "version": "v1", "namespace": ref(item).namespace, "name": ref(item).name}
            | {"status": "OutOfSync" if item in lacking else "Synced"}
            for item in wanted
        ),
    )


def _holds(live: Obj, item: Obj) -> bool:
    return all(contains({key: live.get(key)}, {key: item[key]}) for key in ("spec", "data") if key in item)


def _put(world: World, app: Obj, items: Iterable[Obj]) -> None:
    for item in items:
        at = ref(item)
        if world.read(NAMESPACES, at.namespace) is None:
            world.create(NAMESPACES, {"metadata": {"name": at.namespace}})
        notes = {TRACKING: f"{app['metadata']['name']}:/{item['kind']}:{at.namespace}/{at.name}"}
        world.ensure(_PLAIN[item["kind"]], item | {"metadata": item["metadata"] | {"annotations": notes}})


def _health_of_plain(live: Obj | None) -> str:
    if live is None:
        return "Missing"
    pending = live.get("kind") == CLAIMS.kind and (live.get("status") or {}).get("phase") != "Bound"
    return "Progressing" if pending else "Healthy"


# ---- Applications of charts ----------------------------------------------------------------------------------------------------


class Rendered(ChartRelease):
    """A chart that Argo CD installs: Helm only renders it, so there is no release Secret; objects carry a tracking id.

    `app` is the spec of its Application.
    """

    def __init__(self, world: World, chart: Obj, values: dict[str, Any], app: Obj) -> None:
        super().__init__(world, chart, values)
        respected = "RespectIgnoreDifferences=true" in ((app.get("syncPolicy") or {}).get("syncOptions") or ())
        rules = app.get("ignoreDifferences") or () if respected else ()
        self._kept = {(rule["group"], rule["kind"]) for rule in rules if ".spec.template" in (rule.get("jqPathExpressions") or ())}

    def as_sent(self, kind: ObjectKind, obj: Obj) -> Obj:
        """Return an object as Argo CD applies it: ignored pod templates stay as they are. Other ignored fields are not played."""
        live = self.world.read(kind, obj["metadata"]["name"], self.namespace) if (kind.group, kind.kind) in self._kept else None
        return obj if live is None else obj | {"spec": obj["spec"] | {"template": live["spec"]["template"]}}

    def marks(self, kind: ObjectKind, obj: Obj) -> dict[str, str]:
        """Return the tracking annotation by which Argo CD recognises an object of this Application."""
        meta = obj["metadata"]
        where = f"{kind.group}/{kind.kind}:{meta.get('namespace', self.namespace if kind.namespaced else '')}/{meta['name']}"
        return {TRACKING: f"{self.name}:{where}"}


def _of_release(world: World, repositories: Repositories, app: Obj, sources: Sequence[Obj]) -> SyncTarget:
    chart = next(source for source in sources if source.get("chart"))
    name, helm = app["metadata"]["name"], chart.get("helm") or {}
    revisions, files = [str(chart["targetRevision"])], {}
    for source in (other for other in sources if other is not chart):
        commit = repositories.commit(source["repoURL"], source["targetRevision"])
        revisions.append(_moved(world, commit))
        files = dict(repositories.files(source["repoURL"], commit))
    values = helm_values(files, helm)
    if name == VICTIM and world.fault("manifest_generation_error"):
        raise SourceError(
            f"failed to execute helm template command: execution error at ({name}/templates/_helpers.tpl:4:3): {name}: bad value", 2
        )
    spec = {"repo": chart["repoURL"], "chart": chart["chart"], "version": chart["targetRevision"]}
    return _of_rendered(world, app, helm, spec, values, tuple(revisions))


def _of_wrapper(world: World, app: Obj, source: Obj, files: Mapping[str, str], commit: str) -> SyncTarget:
    """Return the target of a chart in Git that wraps another: the wrapped chart's values stand below its name.

    Of its templates only ConfigMaps of the wrapper's own files are played.
    """
    folder, helm = source["path"].strip("/"), source.get("helm") or {}
    (wrapped,) = _parsed(files[f"{folder}/Chart.yaml"])["dependencies"]
    values = helm_values(files, {"valueFiles": [f"$values/{folder}/{name}" for name in helm.get("valueFiles") or ()]})
    own = {path.removeprefix(f"{folder}/"): text for path, text in files.items() if path.startswith(f"{folder}/")}
    release = helm.get("releaseName") or app["metadata"]["name"]
    maps = list(wrapper_templates.config_maps(own, release, app["spec"]["destination"]["namespace"]))
    spec = {"repo": wrapped["repository"], "chart": wrapped["name"], "version": wrapped["version"]}
    target = _of_rendered(world, app, helm, spec, values.get(wrapped["name"]) or {}, (commit,), own)
    return replace(target, act=None if target.act is None else functools.partial(_both, world, app, maps, target.act))


def _both(world: World, app: Obj, maps: Iterable[Obj], act: Callable[[], None]) -> None:
    _put(world, app, maps)
    act()


def _of_rendered(
    world: World, app: Obj, helm: Obj, spec: Obj, values: dict[str, Any], revisions: tuple[str, ...], files: Obj | None = None
) -> SyncTarget:
    name = app["metadata"]["name"]
    wanted = digest([app["spec"], values, *([files] if files else [])])
    settled = annotations_of(app).get(INSTALLED) == wanted
    body = {"metadata": {"name": helm.get("releaseName") or name, "namespace": app["metadata"]["namespace"]}}
    spec = {**spec, "targetNamespace": app["spec"]["destination"]["namespace"]}
    release = Rendered(world, body | {"spec": spec}, values, app["spec"])
    drifts = settled and name == VICTIM and world.fault("argo_cd_drift") is not None
    workloads = _workloads(world, release.name, release.namespace) if settled else []
    return SyncTarget(
        revisions=revisions,
        synced=settled and not drifts,
        act=None if settled else functools.partial(_install, world, ref(app), release, wanted),
        waiting="drift" if drifts else "",
        health=_worst(_health_of(workload) for _, workload in workloads) if settled else "Missing",
        resources=(
            {"kind": "Namespace", "version": "v1", "name": release.namespace, "status": "Synced"},
            *(_workload_resource(kind, workload) for kind, workload in workloads),
        ),
    )


def _install(world: World, at: Ref, release: ChartRelease, wanted: str) -> None:
    """Create the chart's objects and record the digest `wanted` on the Application. Raises ChartError in Helm's words."""
    release.target(create=True)
    installer(release)(world, release)
    world.patch(APPLICATIONS, at, {"metadata": {"annotations": {INSTALLED: wanted}}})


def failure(error: ChartError) -> SyncTarget:
    """Return the target that reports a failed install: as a failed sync for an unknown kind, else as a failed rendering."""
    text = str(error)
    if "no matches for kind" in text:
        kind = text.partition('no matches for kind "')[2].partition('"')[0]
        group = text.partition('in version "')[2].partition("/")[0]
        blamed = {"kind": kind, "name": kind.lower(), "status": "SyncFailed"}
        hint = f'Make sure the "{kind}" CRD is installed'
        message = f"The Kubernetes API could not find {group}/{kind} for requested resource. {hint}"
        return SyncTarget(failed=("one or more synchronization tasks are not valid", blamed | {"message": message}))
    return SyncTarget(conditions=(("ComparisonError", GENERATION.format(of=2, why=f"failed to execute helm command: {text}")),))


def _workloads(world: World, release: str, namespace: str) -> list[tuple[ObjectKind, Obj]]:
    """Return kind and object of each Deployment, StatefulSet and DaemonSet that the chart itself installed.

    Workloads that an operator created later are not among them.
    """
    labels = {"app.kubernetes.io/instance": release, "app.kubernetes.io/managed-by": "Helm"}
    kinds = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
    return [(kind, workload) for kind in kinds for workload in world.select(kind, namespace, labels)]


def _workload_resource(kind: ObjectKind, workload: Obj) -> Obj:
    at, health = ref(workload), {"status": _health_of(workload)}
    about = {"group": kind.group, "version": "v1", "kind": kind.kind, "namespace": at.namespace, "name": at.name}
    return about | {"status": "Synced", "health": health}


def _health_of(workload: Obj) -> str:
    status: dict[str, Any] = workload.get("status") or {}
    wanted = status.get("desiredNumberScheduled", workload["spec"].get("replicas", 1))
    observed = status.get("observedGeneration", 0) >= workload["metadata"].get("generation", 1)
    settled = observed and int(status.get("numberReady", status.get("readyReplicas")) or 0) >= int(wanted or 0)
    return "Healthy" if settled else "Progressing"
