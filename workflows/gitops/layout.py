"""Paths and names of the files and Argo CD objects that bringup writes to the Git repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from steps.contract.delivery import KUSTOMIZATIONS
from workflows.catalog import PlannedRelease
from workflows.spec import ClusterSpec
from workflows.spec.sections.argocd_delivery import ArgoCdDelivery
from workflows.stage_names import STAGES

INSTALLER = "argo_cd"
"""Release id of Argo CD itself, the only chart that Argo CD does not install. Each release has exactly one owner."""
IN_CLUSTER = "https://kubernetes.default.svc"
"""API address under which Argo CD knows the cluster that it runs in, which is the target cluster."""


def delivery(spec: ClusterSpec) -> ArgoCdDelivery:
    """Return the settings of a spec for delivery by Argo CD. Raises ValueError if the spec has none."""
    if spec.delivery.argo_cd is None:
        raise ValueError(f"{spec.name} is not delivered by Argo CD")
    return spec.delivery.argo_cd


def delivered_releases(releases: Iterable[PlannedRelease]) -> tuple[PlannedRelease, ...]:
    """Return the releases that Argo CD installs: every chart except Argo CD's own, and no upstream manifest."""
    return tuple(release for release in releases if release.chart and release.id != INSTALLER)


def by_stage(releases: Iterable[PlannedRelease]) -> dict[str, tuple[PlannedRelease, ...]]:
    """Return stage id → the releases that Argo CD installs in it, in running order; stages without such releases are left out."""
    chosen = delivered_releases(releases)
    stages = {stage: tuple(release for release in chosen if release.stage == stage) for stage in STAGES}
    return {stage: delivered for stage, delivered in stages.items() if delivered}


def waves(releases: Iterable[PlannedRelease]) -> dict[str, int]:
    """Return release id → sync wave for the releases of one stage: one more than the highest wave among those it needs, else 0."""
    by_id = {release.id: release for release in releases}
    wave: dict[str, int] = {}
    for release in by_id.values():  # catalog order: what is needed comes first
        wave[release.id] = max((wave[needed] + 1 for needed in release.needs if needed in wave), default=0)
    return wave


def privileged_namespaces(releases: Iterable[PlannedRelease]) -> Mapping[str, bool]:
    """Return namespace → True if one of the releases in it needs the privileged level of Pod Security, else False."""
    spaces: dict[str, bool] = {}
    for release in releases:
        spaces[release.namespace] = spaces.get(release.namespace, False) or release.privileged
    return spaces


def root_name(stage: str) -> str:
    """Return the name of a stage's root Application, such as `bringup-gpu-operator`."""
    return f"bringup-{stage.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The file paths of one environment (one cluster), relative to the root of the Git repository."""

    path: str
    environment: str

    @classmethod
    def of(cls, spec: ClusterSpec) -> Layout:
        """Return the layout of the environment that a spec describes. Raises ValueError without delivery by Argo CD."""
        argo = delivery(spec)
        return cls(argo.path, argo.environment or spec.name)

    @property
    def environments(self) -> str:
        """Return the folder that has one subfolder for each environment."""
        return f"{self.path}/environments"

    @property
    def home(self) -> str:
        """Return the folder of this environment."""
        return f"{self.environments}/{self.environment}"

    @property
    def config_map(self) -> str:
        """Return the file with the keys that bringup sets in the ConfigMap argocd-cm."""
        return f"{self.home}/bootstrap/argocd-cm.yaml"

    @property
    def overlay(self) -> str:
        """Return the folder whose files the site writes and bringup never changes."""
        return f"{self.home}/overlay"

    @property
    def roots(self) -> str:
        """Return the folder of the stages' root Applications."""
        return f"{self.home}/roots"

    @property
    def common(self) -> tuple[str, str]:
        """Return the two files that all environments share: README and ApplicationSet."""
        return f"{self.path}/README.md", f"{self.path}/applicationset.yaml"

    def stage(self, stage: str) -> str:
        """Return the folder with the Applications of a stage's releases."""
        return f"{self.home}/stages/{stage.replace('_', '-')}"

    def root(self, stage: str) -> str:
        """Return the file of a stage's root Application."""
        return f"{self.roots}/{stage.replace('_', '-')}.yaml"

    def values(self, release: PlannedRelease) -> str:
        """Return the file with a release's Helm values."""
        return f"{self.home}/values/{release.release_name}.yaml"

    def chart(self, release: PlannedRelease) -> str:
        """Return the folder of the chart that wraps a release's own (see `wrapper_charts`)."""
        return f"{self.home}/charts/{release.release_name}"

    def objects(self, name: str) -> str:
        """Return the folder with the objects of an Application that installs no chart."""
        return f"{self.home}/objects/{name}"

    def has_overlay(self, paths: Iterable[str]) -> bool:
        """Return True if `paths` contain the overlay's kustomization file, without which no stage can be built."""
        return not {f"{self.overlay}/{name}" for name in KUSTOMIZATIONS}.isdisjoint(paths)

    def others(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the sorted names of the other environments that have files among `paths`."""
        below = (path.removeprefix(f"{self.environments}/") for path in paths if path.startswith(f"{self.environments}/"))
        return tuple(sorted({name for name, inside, _ in (path.partition("/") for path in below) if inside} - {self.environment}))

    def is_ours(self, path: str) -> bool:
        """Return True if a path lies in this environment's folder but not in its overlay, so that only bringup writes the file."""
        return path.startswith(f"{self.home}/") and not path.startswith(f"{self.overlay}/")
