"""Types of the catalog: the component (a chart as data), the overlay that changes components, and the release planned of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import (
    ChartVersion,
    Digest,
    DnsLabel,
    Duration,
    Listed,
    OneOrMore,
    Section,
    SnakeId,
    Url,
    problem,
)
from workflows.stage_names import StageName

Sentence = Annotated[str, StringConstraints(min_length=1, max_length=400)]
FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+\.yaml$")]
Minor = Annotated[str, StringConstraints(pattern=r"^1\.[0-9]{2}$")]
Criteria = Mapping[SnakeId, Annotated[tuple[str, ...], OneOrMore]]
"""Dimension → accepted values (see `criteria`). If the spec's fact is not among them, the criteria do not match."""

RolloutKind = Literal["rolling_update", "on_delete", "recreate", "crds_only"]


class Provision(Section):
    """A capability that only one component of a cluster may provide, with the Helm value that turns it on."""

    capability: Literal["nfd", "multus", "device_plugin"] = Field(description="Capability that the component provides.")
    where: str | None = Field(
        default=None, description="Dotted path of the Helm value that turns it on; default: always on.", examples=["nfd.enabled"]
    )
    default: bool = Field(default=True, description="Whether the chart turns the capability on if the value is not set.")


class KubernetesRange(Section):
    """The Kubernetes versions that a component supports, both ends included. Only the low end may name a patch release."""

    least: Annotated[str, StringConstraints(pattern=r"^1\.[0-9]{2}(\.[0-9]+)?$")] = Field(description="Lowest version.")
    most: Minor | None = Field(default=None, description="Highest minor; default: no limit.")
    strict: bool = Field(
        default=True, description="true: versions above the highest are known to fail; false: they are only undocumented."
    )


class ObjectFile(Section):
    """A reference to a file of `objects/`, whose Kubernetes objects are applied after the component's own release."""

    file: FileName = Field(description="File name in objects/.")
    when: Criteria = Field(default={}, description="Criteria under which the objects are applied; default: always.")


ClusterKind = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/([A-Z][A-Za-z]+|\*)$")]
"""A cluster-wide kind as GROUP/KIND; `*` stands for every kind of a group."""


class IgnoredDifference(Section):
    """Fields of a release's objects that other controllers write: Argo CD neither counts them as drift nor restores them."""

    group: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]*$")] = Field(description="API group.")
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z]+$")] = Field(
        description="Kind, exactly as in the API: another spelling silently matches nothing."
    )
    jq: Annotated[tuple[str, ...], Listed, Field(min_length=1)] = Field(description="jq paths of the fields.")


class Component(Section):
    """An entry of `components.yaml`: a Helm chart or an upstream manifest with its pin, namespace, rollout, health and rollback."""

    stage: StageName = Field(description="Stage that installs the component.")
    when: Criteria = Field(default={}, description="Criteria under which the component is planned; default: always.")
    chart: str = Field(default="", description="Chart name; empty for a manifest.")
    repo: Url | None = Field(default=None, description="Chart repository; without one the spec must give it.")
    manifest: Url | None = Field(default=None, description="URL of an upstream manifest, with {version}.")
    version: ChartVersion | None = Field(default=None, description="Exact version; without one the spec must give it.")
    from_spec: Mapping[Literal["repo", "version", "namespace"], str] = Field(
        default={}, description="Paths in the spec that give repo, version or namespace."
    )
    app_version: str | None = Field(default=None, description="Version of the application in that chart version.")
    digest: Digest | None = Field(default=None, description="Digest of the chart.")
    namespace: DnsLabel | None = Field(default=None, description="Target namespace.")
    privileged: bool = Field(default=False, description="Whether the namespace needs the privileged pod security level.")
    release_name: DnsLabel | None = Field(default=None, description="Helm release; default: the id with dashes.")
    values: FileName | None = Field(default=None, description="File name in values/.")
    objects: Annotated[tuple[ObjectFile, ...], Listed] = Field(
        default=(), description="Objects that are applied after the release."
    )
    gates: Annotated[tuple[str, ...], Listed] = Field(default=(), description="Gates that judge the component.")
    needs: Annotated[tuple[SnakeId, ...], Listed] = Field(
        default=(), description="Components that come first, if they are planned."
    )
    crds: Annotated[tuple[str, ...], Listed] = Field(default=(), description="CRDs that the component installs.")
    kubernetes: KubernetesRange | None = Field(default=None, description="Kubernetes versions that the component supports.")
    lines: Annotated[tuple[str, ...], Listed] = Field(
        default=(), description="Release lines (majors), oldest first; an upgrade stays in its own or goes to the next."
    )
    provides: Annotated[tuple[Provision, ...], Listed] = Field(
        default=(), description="Capabilities that may exist only once in a cluster."
    )
    cluster_kinds: Annotated[tuple[ClusterKind, ...], Listed] = Field(
        default=(), description="Cluster-wide kinds that the chart creates, besides CRDs, roles and webhooks."
    )
    other_namespaces: Annotated[tuple[DnsLabel, ...], Listed] = Field(
        default=(), description="Further namespaces in which the chart creates objects."
    )
    ignore_differences: Annotated[tuple[IgnoredDifference, ...], Listed] = Field(
        default=(), description="Fields that others write, which Argo CD ignores."
    )
    rollout: RolloutKind | None = Field(default=None, description="How workloads change at an upgrade.")
    health: Sentence | None = Field(default=None, description="Signs that the component works.")
    rollback: Sentence | None = Field(default=None, description="How to go back.")
    timeout: Duration = Field(default="5m", validate_default=True, description="Timeout of Helm for one install.")
    sources: Mapping[str, Sentence] = Field(default={}, description="Public source of each fact.")

    @model_validator(mode="after")
    def _chart_or_manifest(self) -> "Component":
        if bool(self.chart) == (self.manifest is not None):
            raise problem("a component is either a chart or a manifest", "give one of chart and manifest")
        return self


class OverlayPart(Section):
    """The changes that one overlay makes to one component."""

    version: ChartVersion | None = Field(default=None, description="Version instead of the catalog's.")
    repo: Url | None = Field(default=None, description="Repository instead of the catalog's.")
    enabled: bool | None = Field(default=None, description="Whether the component is planned, regardless of its own criteria.")
    values: Mapping[str, Any] = Field(default={}, description="Helm values merged over those before.")


class Overlay(Section):
    """A file of `overlays/`: changes to components that apply if the spec meets its criteria.

    `base` names the overlay that it refines. The base is applied first, and its criteria must match too.
    """

    base: str | None = Field(default=None, description="Overlay that this one refines, whose criteria must match too.")
    criteria: Criteria = Field(default={}, description="Criteria under which the overlay applies; default: always.")
    why: Sentence = Field(description="Why it exists, with its source.")
    components: Mapping[SnakeId, OverlayPart] = Field(description="Changes by component.")


@dataclass(frozen=True, slots=True)
class ValuesLayer:
    """The origin of some Helm values of a release, and the dotted keys that it set.

    The origin is `values/x.yaml`, `overlay NAME` or `spec overrides.x`.
    """

    origin: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlannedRelease:
    """A component as one spec deploys it: pinned source, final Helm values, and what its apply task and its gates need.

    `chart` and `repo` are in the form of a HelmChart: an OCI chart has its whole address in `chart`. For an upstream manifest both
    are empty and `manifest` is its URL. `source` names the origin in one text. `other_digests` are further accepted digests of the
    same version. `upgrade_from` lists the release lines from which an upgrade is allowed, empty if any is. `app_version` is empty
    if unknown. `provenance` says which file, overlay or override set which values.
    """

    id: str
    component: str
    stage: StageName
    source: str
    chart: str
    repo: str
    manifest: str
    version: str
    digest: str
    namespace: str
    privileged: bool
    release_name: str
    values: Mapping[str, Any]
    objects: tuple[Mapping[str, Any], ...]
    rollout: str
    health: str
    rollback: str
    gates: tuple[str, ...]
    needs: tuple[str, ...]
    crds: tuple[str, ...]
    provides: tuple[str, ...]
    kubernetes: KubernetesRange | None
    timeout_seconds: int
    provenance: tuple[ValuesLayer, ...] = field(default=())
    other_digests: tuple[str, ...] = ()
    upgrade_from: tuple[str, ...] = ()
    app_version: str = ""
    cluster_kinds: tuple[str, ...] = ()
    other_namespaces: tuple[str, ...] = ()
    ignore_differences: tuple[IgnoredDifference, ...] = ()
