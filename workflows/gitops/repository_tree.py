"""Render all files that bringup writes to the Git repository. The first lines of each file say who writes it and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from workflows.catalog import PlannedRelease
from workflows.catalog.slurm_objects import SupportingObjects, supporting_objects
from workflows.catalog.yaml_text import readable_yaml
from workflows.gitops import argo_applications, projects
from workflows.gitops.layout import Layout, by_stage, delivered_releases, delivery, waves
from workflows.gitops.wrapper_charts import is_wrapped, wrapper_files
from workflows.spec import ClusterSpec

Tree = dict[str, str]
"""File path from the root of the repository → file text."""

_OURS = "Written by bringup: it is rendered from the cluster's spec, changes by hand are overwritten."
_KUSTOMIZE = "kustomize.config.k8s.io"


def render_tree(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> Tree:
    """Return every file for the Git repository, path → text, sorted by path. Equal spec and catalog give equal bytes."""
    every = tuple(releases)
    made = {**_common(spec), **_bootstrap(spec, every), **_stages(spec, every), **_values(spec, every), **_overlay(spec)}
    made |= {**_wrappers(spec, every), **_objects(spec, every), **_pointers(spec, every)}
    return dict(sorted(made.items()))


def published_files(spec: ClusterSpec, made: Mapping[str, str]) -> Tree:
    """Return the subset of the rendered files `made` that the pinned revision must hold.

    With a pinned commit, files that contain the revision are left out, because a commit cannot name itself.
    """
    if not delivery(spec).is_commit:
        return dict(made)
    layout = Layout.of(spec)
    pointers = f"{layout.home}/environment.yaml", f"{layout.home}/root.yaml", f"{layout.roots}/"
    return {path: text for path, text in made.items() if not path.startswith(pointers)}


def _common(spec: ClusterSpec) -> Tree:
    layout = Layout.of(spec)
    readme, application_set = layout.common
    text = (Path(__file__).parent / "templates/repository_readme.md").read_text(encoding="utf-8")
    return {
        readme: text.replace("PATH", layout.path),
        application_set: _file(
            "For a management Argo CD that looks after several clusters: one Application an environment, all from this template.",
            "What is deployed is the revision in each environment.yaml; the branch is only where these are read.",
            "Whoever merges into that branch decides what runs.",
            objects=(projects.environments_project(spec), argo_applications.application_set(spec)),
        ),
    }


def _bootstrap(spec: ClusterSpec, releases: tuple[PlannedRelease, ...]) -> Tree:
    layout = Layout.of(spec)
    return {
        f"{layout.home}/bootstrap/projects.yaml": _file(
            "What the Applications of this environment may take, and where they may write. Nothing uses the project default.",
            "The pipeline applies it. By hand: kubectl apply -f projects.yaml",
            objects=projects.projects(spec, releases),
        ),
        layout.config_map: _file(
            "Keys that Argo CD needs in its ConfigMap; its other keys are left alone. The pipeline patches and reads them back.",
            f"By hand: kubectl -n {delivery(spec).namespace} patch configmap argocd-cm --type merge --patch-file argocd-cm.yaml",
            objects=[projects.config_map(spec, releases)],
        ),
    }


def _stages(spec: ClusterSpec, releases: tuple[PlannedRelease, ...]) -> Tree:
    layout, made = Layout.of(spec), {}
    for stage, ones in by_stage(releases).items():
        files, beside = [f"{release.release_name}.yaml" for release in ones], _beside(spec, ones)
        kustomization = {
            "apiVersion": f"{_KUSTOMIZE}/v1beta1",
            "kind": "Kustomization",
            "resources": [*(f"{support.name}.yaml" for support in beside), *files],
            "components": ["../../overlay"],
        }
        head = f"The releases of stage {stage}. Your own changes stand in ../../overlay, which bringup never writes over."
        made[f"{layout.stage(stage)}/kustomization.yaml"] = _file(head, objects=[kustomization])
        for release, name, manifest in zip(ones, files, argo_applications.stage_applications(spec, ones), strict=True):
            notes = [f"{release.release_name} {release.version} by Argo CD; healthy means: {release.health}."]
            notes += ["Without finalizer: removing this file leaves what it installed. " + f"Rollback: {release.rollback}."]
            made[f"{layout.stage(stage)}/{name}"] = _file(*notes, objects=[manifest])
        for support in beside:
            made[f"{layout.stage(stage)}/{support.name}.yaml"] = _objects_application(spec, support, ones)
    return made


def _beside(spec: ClusterSpec, releases: Iterable[PlannedRelease]) -> tuple[SupportingObjects, ...]:
    """Return the objects without a chart that Argo CD installs; none with a pinned commit, which no Application can name."""
    return () if delivery(spec).is_commit else supporting_objects(spec, releases)


def _objects_application(spec: ClusterSpec, support: SupportingObjects, releases: tuple[PlannedRelease, ...]) -> str:
    last = max(waves(releases).values())
    wave = last - 1 if support.is_first else last
    when = "before the cluster" if support.is_first else "with the cluster: a claim may wait for its first pod"
    manifest = argo_applications.objects_application(spec, support, wave=wave)
    return _file(f"Objects of ../../objects/{support.name}, applied {when}; nothing here deletes them.", objects=[manifest])


def _objects(spec: ClusterSpec, releases: tuple[PlannedRelease, ...]) -> Tree:
    layout = Layout.of(spec)
    return {
        f"{layout.objects(support.name)}/{item['metadata']['name']}.yaml": _file("Read by Argo CD as it is.", objects=[item])
        for support in _beside(spec, releases)
        for item in support.objects
    }


def _wrappers(spec: ClusterSpec, releases: tuple[PlannedRelease, ...]) -> Tree:
    layout, files = Layout.of(spec), Tree()
    for release in filter(lambda release: is_wrapped(spec, release), releases):
        head = _head(f"A chart around {release.release_name} {release.version}; values of the wrapped chart stand below its name.")
        wrapper = wrapper_files(spec, release, head)
        files |= {f"{layout.chart(release)}/{name}": text for name, text in wrapper.items()}
    return files


def _values(spec: ClusterSpec, releases: tuple[PlannedRelease, ...]) -> Tree:
    if delivery(spec).is_commit:
        return {}
    layout, files = Layout.of(spec), {}
    for release in (release for release in delivered_releases(releases) if not is_wrapped(spec, release)):
        change = f"To change them: overrides.{release.id}.values in the spec."
        head = _head(f"Helm values of {release.release_name} {release.version}. {change}")
        files[layout.values(release)] = head + readable_yaml(release.values, sort=True)
    return files


def _overlay(spec: ClusterSpec) -> Tree:
    """Return the initial kustomization file of the site's overlay, which is written only if it is missing.

    It is a Kustomize component with a name, because Kustomize calls one without any field empty and fails.
    """
    component = {
        "apiVersion": f"{_KUSTOMIZE}/v1alpha1",
        "kind": "Component",
        "metadata": {"name": f"overlay-{Layout.of(spec).environment}"},
    }
    text = "".join(f"# {line}".rstrip() + "\n" for line in _OVERLAY.strip().split("\n"))
    return {f"{Layout.of(spec).overlay}/kustomization.yaml": text + readable_yaml(component)}


_OVERLAY = """
Yours: bringup writes this file once and never again, and never compares it.
It is part of every stage, so each patch needs a target; one that a stage lacks is passed over there. As in:

patches:
  - target: {kind: Application, name: gpu-operator}
    patch: |
      - op: add
        path: /spec/sources/0/helm/parameters
        value: [{name: dcgmExporter.enabled, value: "true"}]

The gates still look for the pinned chart and revision: a patch of these is reported as a difference.
"""


def _pointers(spec: ClusterSpec, releases: tuple[PlannedRelease, ...]) -> Tree:
    argo, layout = delivery(spec), Layout.of(spec)
    address = spec.registration_address
    environment = {
        "name": layout.environment,
        "server": f"https://{f'[{address}]' if ':' in address else address}:6443",
        "revision": argo.revision,
        "roots": layout.roots,
    }
    made = {
        f"{layout.home}/environment.yaml": _head("All that tells this environment apart, for ../../applicationset.yaml.")
        + readable_yaml(environment),
        f"{layout.home}/root.yaml": _file(
            "For sites that use Argo CD without the pipeline: kubectl apply -f root.yaml, after bootstrap/.",
            "It starts the stages one after another as Argo CD finds them healthy; bringup's own gates do not run then.",
            objects=[argo_applications.environment_application(spec)],
        ),
    }
    for stage in by_stage(releases):
        made[layout.root(stage)] = _file(
            f"Stage {stage}: the pipeline applies this when the stage before has passed its gates.",
            objects=[argo_applications.root_application(spec, stage)],
        )
    return made


def _file(*notes: str, objects: Iterable[Mapping[str, Any]]) -> str:
    return _head(*notes) + "---\n".join(map(readable_yaml, objects))


def _head(*notes: str) -> str:
    lines = [*notes, _OURS]
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)
