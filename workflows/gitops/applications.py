"""Applications: one a release, one root a stage, one over the roots, and the ApplicationSet with one an environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from workflows.catalog import Release
from workflows.gitops.layout import IN_CLUSTER, Layout, delivery, privileged, root_name, waves
from workflows.gitops.projects import ENVIRONMENTS, roots_project
from workflows.spec import STAGES, ClusterSpec

Object = dict[str, Any]

API = "argoproj.io/v1alpha1"
WAVE = "argocd.argoproj.io/sync-wave"
CHART_DIGEST = "bringup/chart-digest"
_RETRY = {"limit": 10, "backoff": {"duration": "10s", "factor": 2, "maxDuration": "3m"}}
"""After its last retry Argo CD never tries the same revision again by itself: 20 minutes of back-off outlast a network that was
away for a while, and still a sync that cannot succeed ends by itself."""
PRIVILEGED = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}


def children(spec: ClusterSpec, releases: Iterable[Release]) -> list[Object]:
    """The Applications of one stage's releases, in catalog order."""
    chosen = tuple(releases)
    wave, opened = waves(chosen), privileged(chosen)
    return [child(spec, release, wave=wave[release.id], privileged=opened[release.namespace]) for release in chosen]


def child(spec: ClusterSpec, release: Release, *, wave: int = 0, privileged: bool = False) -> Object:
    """The Application of a release: the pinned chart from its repository with its values from Git.

    It has no finalizer: who removes it leaves what it installed. Running drivers are not torn out by a change in Git.
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
        "sources": _sources(spec, release),
        "syncPolicy": policy,
    }
    if release.ignore_differences:
        policy["syncOptions"].append("RespectIgnoreDifferences=true")  # else a sync writes the fields back
        body["ignoreDifferences"] = [
            {"group": one.group, "kind": one.kind, "jqPathExpressions": list(one.jq)} for one in release.ignore_differences
        ]
    return _application(release.release_name, argo.namespace, notes, body)


def root(spec: ClusterSpec, stage: str) -> Object:
    """The Application over the Applications of a stage. It is applied when the stage starts, and has them made from Git."""
    wave = str(next(place for place, name in enumerate(STAGES) if name == stage))
    return _over(spec, root_name(stage), Layout.of(spec).stage(stage), {WAVE: wave})


def over_roots(spec: ClusterSpec) -> Object:
    """The Application over all roots, for sites that use Argo CD without the pipeline."""
    layout = Layout.of(spec)
    return _over(spec, f"environment-{layout.environment}", layout.roots, {})


def application_set(spec: ClusterSpec) -> Object:
    """One Application over the roots of each environment, for a management Argo CD.

    All that tells environments apart comes from their `environment.yaml`. The generator reads these on the branch; what is
    deployed is the revision that each of them names.
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
    """An Application over Applications; those that are no longer in Git go, what they installed stays."""
    argo = delivery(spec)
    body = {
        "project": roots_project(argo),
        "source": {"repoURL": argo.repo, "path": path, "targetRevision": argo.revision},
        "destination": {"server": IN_CLUSTER, "namespace": argo.namespace},
        "syncPolicy": {"automated": {"prune": True, "selfHeal": True}, "syncOptions": ["ServerSideApply=true"], "retry": _RETRY},
    }
    return _application(name, argo.namespace, notes, body)


def _application(name: str, namespace: str, notes: dict[str, str], body: Object) -> Object:
    meta: Object = {"name": name, "namespace": namespace}
    if notes:
        meta["annotations"] = notes
    return {"apiVersion": API, "kind": "Application", "metadata": meta, "spec": body}


def _sources(spec: ClusterSpec, release: Release) -> list[Object]:
    """The chart, and the values at the pinned tag. A commit cannot name itself: there the values stand in the Application."""
    argo = delivery(spec)
    repo, chart = chart_place(release)
    source: Object = {"repoURL": repo, "chart": chart, "targetRevision": release.version, "helm": {}}
    source["helm"]["releaseName"] = release.release_name
    if argo.is_commit:
        source["helm"]["valuesObject"] = release.values
        return [source]
    source["helm"]["valueFiles"] = [f"$values/{Layout.of(spec).values(release)}"]
    return [source, {"repoURL": argo.repo, "targetRevision": argo.revision, "ref": "values"}]


def chart_place(release: Release) -> tuple[str, str]:
    """Repository and name of a chart as Argo CD wants them: of an OCI chart without the scheme."""
    if release.repo:
        return release.repo, release.chart
    repo, _, chart = release.chart.removeprefix("oci://").rpartition("/")
    return repo, chart
