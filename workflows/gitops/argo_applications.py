"""Build the Argo CD objects: an Application per release, a root Application per stage, one over all roots, an ApplicationSet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workflows.catalog import PlannedRelease
from workflows.catalog.slurm_objects import SupportingObjects
from workflows.gitops.layout import IN_CLUSTER, Layout, delivery, privileged_namespaces, root_name, waves
from workflows.gitops.projects import ENVIRONMENTS, chart_source, roots_project
from workflows.gitops.wrapper_charts import is_wrapped
from workflows.spec import ClusterSpec
from workflows.stage_names import STAGES

Object = dict[str, Any]

API = "argoproj.io/v1alpha1"
WAVE = "argocd.argoproj.io/sync-wave"
CHART_DIGEST = "bringup/chart-digest"
_RETRY = {"limit": 10, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "3m"}}
"""Retry policy of syncs: about 20 minutes, which outlasts a short network outage but ends a sync that cannot succeed.

After its last retry Argo CD never syncs the same revision again by itself.
"""
PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}


def stage_applications(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> list[Object]:
    """Return the Applications of one stage's releases, in catalog order, with sync waves that follow their needs."""
    chosen = tuple(releases)
    wave, opened = waves(chosen), privileged_namespaces(chosen)
    return [release_application(spec, release, wave=wave[release.id], privileged=opened[release.namespace]) for release in chosen]


def release_application(spec: ClusterSpec, release: PlannedRelease, *, wave: int = 0, privileged: bool = False) -> Object:
    """Return the Application that installs a release: the pinned chart from its repository, with the Helm values from Git.

    The Application has no finalizer: removing it leaves what it installed, so a change in Git never tears out running drivers.
    """
    argo = delivery(spec)
    notes = {WAVE: str(wave), **({CHART_DIGEST: release.digest} if release.digest else {})}
    policy: Object = {
        "automated": {"prune": True, "selfHeal": True},
        "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
        "retry": _RETRY,
    }
    if privileged:
        policy["managedNamespaceMetadata"] = {"labels": dict(PRIVILEGED)}
    body: Object = {
        "project": argo.project,
        "destination": {"server": IN_CLUSTER, "namespace": release.namespace},
        **_sources(spec, release),
        "syncPolicy": policy,
    }
    if release.ignore_differences:
        policy["syncOptions"].append("RespectIgnoreDifferences=true")  # else a sync writes the fields back
        body["ignoreDifferences"] = [
            {"group": rule.group, "kind": rule.kind, "jqPathExpressions": list(rule.jq)} for rule in release.ignore_differences
        ]
    return _application(release.release_name, argo.namespace, notes, body)


def objects_application(spec: ClusterSpec, support: SupportingObjects, *, wave: int) -> Object:
    """Return the Application of objects in Git that no chart makes. It never deletes them: a volume claim holds users' files."""
    argo = delivery(spec)
    body: Object = {
        "project": argo.project,
        "destination": {"server": IN_CLUSTER, "namespace": support.namespace},
        "source": {"repoURL": argo.repo, "path": Layout.of(spec).objects(support.name), "targetRevision": argo.revision},
        "syncPolicy": {
            "automated": {"prune": False, "selfHeal": True},
            "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
            "retry": _RETRY,
        },
    }
    return _application(support.name, argo.namespace, {WAVE: str(wave)}, body)


def root_application(spec: ClusterSpec, stage: str) -> Object:
    """Return the root Application of a stage: once applied, it creates the Applications of the stage's releases from Git."""
    wave = next(str(place) for place, name in enumerate(STAGES) if name == stage)
    return _over(spec, root_name(stage), Layout.of(spec).stage(stage), {WAVE: wave})


def environment_application(spec: ClusterSpec) -> Object:
    """Return the Application that creates all root Applications of an environment, for sites without the pipeline."""
    layout = Layout.of(spec)
    return _over(spec, f"environment-{layout.environment}", layout.roots, {})


def application_set(spec: ClusterSpec) -> Object:
    """Return the ApplicationSet of a management Argo CD, which makes one Application over the stage roots of each environment.

    Every difference between environments comes from their `environment.yaml`. The generator reads these files on the branch; the
    revision in each file is what gets deployed.
    """
    argo, layout = delivery(spec), Layout.of(spec)
    files = [{"path": f"{layout.environments}/*/environment.yaml"}]
    generator = {"git": {"repoURL": argo.repo, "revision": argo.branch, "files": files}}
    template: Object = {
        "metadata": {"name": "environment-{{.name}}"},
        "spec": {
            "project": ENVIRONMENTS,
            "source": {"repoURL": argo.repo, "path": "{{.roots}}", "targetRevision": "{{.revision}}"},
            "destination": {"server": "{{.server}}", "namespace": argo.namespace},
            "syncPolicy": {"automated": {"prune": False, "selfHeal": True}, "retry": _RETRY},
        },
    }
    return {
        "apiVersion": API,
        "kind": "ApplicationSet",
        "metadata": {"name": "bringup", "namespace": argo.namespace},
        "spec": {
            "goTemplate": True,
            "goTemplateOptions": ["missingkey=error"],
            "generators": [generator],
            "syncPolicy": {"applicationsSync": "create-update", "preserveResourcesOnDeletion": True},
            "template": template,
        },
    }


def _over(spec: ClusterSpec, name: str, path: str, notes: dict[str, str]) -> Object:
    """Return an Application that creates the Applications found at `path` in Git.

    It deletes an Application that is gone from Git, while the objects installed by that Application stay.
    """
    argo = delivery(spec)
    body = {
        "project": roots_project(argo),
        "source": {"repoURL": argo.repo, "path": path, "targetRevision": argo.revision},
        "destination": {"server": IN_CLUSTER, "namespace": argo.namespace},
        "syncPolicy": {"automated": {"prune": True, "selfHeal": True}, "syncOptions": ["ServerSideApply=true"], "retry": _RETRY},
    }
    return _application(name, argo.namespace, notes, body)


def _application(name: str, namespace: str, notes: dict[str, str], body: Object) -> Object:
    meta = {"name": name, "namespace": namespace} | ({"annotations": notes} if notes else {})
    return {"apiVersion": API, "kind": "Application", "metadata": meta, "spec": body}


def _sources(spec: ClusterSpec, release: PlannedRelease) -> Object:
    """Return `sources` of a release's Application: the chart and, if the spec pins a tag, the Git repository with the values.

    A commit cannot name itself, so with a pinned commit the values are inline in the Application. A wrapped chart has one `source`,
    the wrapper in Git.
    """
    argo, layout = delivery(spec), Layout.of(spec)
    if is_wrapped(spec, release):
        wrapper = {"releaseName": release.release_name, "valueFiles": ["values.yaml"]}
        return {"source": {"repoURL": argo.repo, "path": layout.chart(release), "targetRevision": argo.revision, "helm": wrapper}}
    repo, chart = chart_source(release)
    values: Object = {"valuesObject": release.values} if argo.is_commit else {"valueFiles": [f"$values/{layout.values(release)}"]}
    helm: Object = {"releaseName": release.release_name, **values}
    source = {"repoURL": repo, "chart": chart, "targetRevision": release.version, "helm": helm}
    git = [] if argo.is_commit else [{"repoURL": argo.repo, "targetRevision": argo.revision, "ref": "values"}]
    return {"sources": [source, *git]}
