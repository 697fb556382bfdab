"""Where everything lies in the repository and what it is called: one place for every path and name of the tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from steps.contract.delivery import KUSTOMIZATIONS
from workflows.catalog import Release
from workflows.spec import STAGES, ClusterSpec
from workflows.spec.delivery import ArgoCd

INSTALLER = "argo_cd"
"""The one release that Argo CD does not own where it delivers: itself (design §6, one owner a release)."""
IN_CLUSTER = "https://kubernetes.default.svc"
"""The cluster that Argo CD runs in, which is the target."""


def delivery(spec: ClusterSpec) -> ArgoCd:
    """The delivery by Argo CD of a spec. Raises ValueError for a spec that has none."""
    if spec.delivery.argo_cd is None:
        raise ValueError(f"{spec.name} is not delivered by Argo CD")
    return spec.delivery.argo_cd


def delivered(releases: Iterable[Release]) -> tuple[Release, ...]:
    """The releases that Argo CD installs: every chart but its own."""
    return tuple(release for release in releases if release.chart and release.id != INSTALLER)


def by_stage(releases: Iterable[Release]) -> dict[str, tuple[Release, ...]]:
    """The delivered releases of each stage that has some, stages in running order."""
    chosen = delivered(releases)
    found: dict[str, tuple[Release, ...]] = {stage: tuple(one for one in chosen if one.stage == stage) for stage in STAGES}
    return {stage: ones for stage, ones in found.items() if ones}


def waves(releases: Iterable[Release]) -> dict[str, int]:
    """The wave of each release of one stage, by id: one later than whatever it needs of the same stage."""
    by_id = {release.id: release for release in releases}
    found: dict[str, int] = {}
    for release in by_id.values():  # catalog order: what is needed comes first
        found[release.id] = max((found[needed] + 1 for needed in release.needs if needed in found), default=0)
    return found


def privileged(releases: Iterable[Release]) -> Mapping[str, bool]:
    """Every namespace of these releases, and whether one of them touches the host."""
    spaces: dict[str, bool] = {}
    for release in releases:
        spaces[release.namespace] = spaces.get(release.namespace, False) or release.privileged
    return spaces


def root_name(stage: str) -> str:
    """Name of a stage's root Application: `bringup-gpu-operator`."""
    return f"bringup-{stage.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one environment, from the root of the repository."""

    path: str
    environment: str

    @classmethod
    def of(cls, spec: ClusterSpec) -> Layout:
        """The layout of a spec."""
        argo = delivery(spec)
        return cls(argo.path, argo.environment or spec.name)

    @property
    def environments(self) -> str:
        """The folder of all environments."""
        return f"{self.path}/environments"

    @property
    def home(self) -> str:
        """The folder of this environment."""
        return f"{self.environments}/{self.environment}"

    @property
    def config_map(self) -> str:
        """The file of our keys of argocd-cm."""
        return f"{self.home}/bootstrap/argocd-cm.yaml"

    @property
    def overlay(self) -> str:
        """The folder that belongs to the site's people."""
        return f"{self.home}/overlay"

    @property
    def roots(self) -> str:
        """The folder of the root Applications."""
        return f"{self.home}/roots"

    @property
    def common(self) -> tuple[str, str]:
        """The two files that all environments share: README and ApplicationSet."""
        return f"{self.path}/README.md", f"{self.path}/applicationset.yaml"

    def stage(self, stage: str) -> str:
        """The folder of a stage."""
        return f"{self.home}/stages/{stage.replace('_', '-')}"

    def root(self, stage: str) -> str:
        """The file of a stage's root Application."""
        return f"{self.roots}/{stage.replace('_', '-')}.yaml"

    def values(self, release: Release) -> str:
        """The values file of a release."""
        return f"{self.home}/values/{release.release_name}.yaml"

    def has_overlay(self, paths: Iterable[str]) -> bool:
        """Whether the overlay among these paths is one that Kustomize can build: every stage takes it in."""
        return not {f"{self.overlay}/{name}" for name in KUSTOMIZATIONS}.isdisjoint(paths)

    def others(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The other environments that have files among these paths, sorted."""
        below = (path.removeprefix(f"{self.environments}/") for path in paths if path.startswith(f"{self.environments}/"))
        return tuple(sorted({name for name, inside, _ in (path.partition("/") for path in below) if inside} - {self.environment}))

    def is_ours(self, path: str) -> bool:
        """Whether a file is this environment's and written by bringup alone."""
        return path.startswith(f"{self.home}/") and not path.startswith(f"{self.overlay}/")
