"""Paths and names of everything in the Git tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from steps.contract.delivery import KUSTOMIZATIONS
from workflows.catalog import PlannedRelease
from workflows.spec import STAGES, ClusterSpec
from workflows.spec.argocd_delivery import ArgoCdDelivery

INSTALLER = "argo_cd"
"""The only release that Argo CD does not own where it delivers: itself. Each release has exactly one owner."""
IN_CLUSTER = "https://kubernetes.default.svc"
"""API address of the cluster that Argo CD runs in, which is the target."""


def delivery(spec: ClusterSpec) -> ArgoCdDelivery:
    """Return the Argo CD delivery of a spec. Raises ValueError if the spec has none."""
    if spec.delivery.argo_cd is None:
        raise ValueError(f"{spec.name} is not delivered by Argo CD")
    return spec.delivery.argo_cd


def delivered_releases(releases: Iterable[PlannedRelease]) -> tuple[PlannedRelease, ...]:
    """Return the releases that Argo CD installs: every chart except its own."""
    return tuple(release for release in releases if release.chart and release.id != INSTALLER)


def by_stage(releases: Iterable[PlannedRelease]) -> dict[str, tuple[PlannedRelease, ...]]:
    """Return the delivered releases of each stage that has any, stages in running order."""
    chosen = delivered_releases(releases)
    stages = {stage: tuple(release for release in chosen if release.stage == stage) for stage in STAGES}
    return {stage: delivered for stage, delivered in stages.items() if delivered}


def waves(releases: Iterable[PlannedRelease]) -> dict[str, int]:
    """Return the sync wave of each release of a stage by id: one later than any release of the stage that it needs."""
    by_id = {release.id: release for release in releases}
    wave: dict[str, int] = {}
    for release in by_id.values():  # catalog order: what is needed comes first
        wave[release.id] = max((wave[needed] + 1 for needed in release.needs if needed in wave), default=0)
    return wave


def privileged_namespaces(releases: Iterable[PlannedRelease]) -> Mapping[str, bool]:
    """Return for each namespace of these releases whether one of them needs the privileged pod security level."""
    spaces: dict[str, bool] = {}
    for release in releases:
        spaces[release.namespace] = spaces.get(release.namespace, False) or release.privileged
    return spaces


def root_name(stage: str) -> str:
    """Return the name of the root Application of a stage: `bringup-gpu-operator`."""
    return f"bringup-{stage.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one environment, relative to the root of the repository."""

    path: str
    environment: str

    @classmethod
    def of(cls, spec: ClusterSpec) -> Layout:
        """Return the layout of a spec."""
        argo = delivery(spec)
        return cls(argo.path, argo.environment or spec.name)

    @property
    def environments(self) -> str:
        """Folder of all environments."""
        return f"{self.path}/environments"

    @property
    def home(self) -> str:
        """Folder of this environment."""
        return f"{self.environments}/{self.environment}"

    @property
    def config_map(self) -> str:
        """File with bringup's keys of the ConfigMap argocd-cm."""
        return f"{self.home}/bootstrap/argocd-cm.yaml"

    @property
    def overlay(self) -> str:
        """Folder that belongs to the site."""
        return f"{self.home}/overlay"

    @property
    def roots(self) -> str:
        """Folder of the root Applications."""
        return f"{self.home}/roots"

    @property
    def common(self) -> tuple[str, str]:
        """Files that all environments share: README and ApplicationSet."""
        return f"{self.path}/README.md", f"{self.path}/applicationset.yaml"

    def stage(self, stage: str) -> str:
        """Return the folder of a stage."""
        return f"{self.home}/stages/{stage.replace('_', '-')}"

    def root(self, stage: str) -> str:
        """Return the file of the root Application of a stage."""
        return f"{self.roots}/{stage.replace('_', '-')}.yaml"

    def values(self, release: PlannedRelease) -> str:
        """Return the values file of a release."""
        return f"{self.home}/values/{release.release_name}.yaml"

    def has_overlay(self, paths: Iterable[str]) -> bool:
        """Return True if the overlay among these paths has a kustomization file, which every stage includes."""
        return not {f"{self.overlay}/{name}" for name in KUSTOMIZATIONS}.isdisjoint(paths)

    def others(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the other environments with files among these paths, sorted."""
        below = (path.removeprefix(f"{self.environments}/") for path in paths if path.startswith(f"{self.environments}/"))
        return tuple(sorted({name for name, inside, _ in (path.partition("/") for path in below) if inside} - {self.environment}))

    def is_ours(self, path: str) -> bool:
        """Return True if a file belongs to this environment and only bringup writes it."""
        return path.startswith(f"{self.home}/") and not path.startswith(f"{self.overlay}/")
