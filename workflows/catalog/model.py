"""The catalog's own words as frozen types: component, overlay, and the release that a spec makes of them."""

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
    StageName,
    Url,
    problem,
)

Sentence = Annotated[str, StringConstraints(min_length=1, max_length=400)]
FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+\.yaml$")]
Minor = Annotated[str, StringConstraints(pattern=r"^1\.[0-9]{2}$")]
Criteria = Mapping[SnakeId, Annotated[tuple[str, ...], OneOrMore]]
"""Dimension → accepted values; a fact that is not among them does not match. See `criteria`."""

RolloutKind = Literal["rolling_update", "on_delete", "recreate", "crds_only"]


class Provision(Section):
    """A capability that must exist once in a cluster (`gpu_stack §9 P07`), and the value that turns it on."""

    capability: Literal["nfd", "multus", "device_plugin"] = Field(description="What is provided.")
    where: str | None = Field(default=None, description="Dotted path of the Helm value; none: always.", examples=["nfd.enabled"])
    default: bool = Field(default=True, description="What the chart does where the value is not set.")


class KubernetesRange(Section):
    """Supported Kubernetes versions, both ends included; patch levels count only at the low end."""

    least: Annotated[str, StringConstraints(pattern=r"^1\.[0-9]{2}(\.[0-9]+)?$")] = Field(description="Lowest.")
    most: Minor | None = Field(default=None, description="Highest minor.")
    strict: bool = Field(default=True, description="Whether above the highest is known not to work, or only not documented.")


class ObjectFile(Section):
    """Objects applied after the release itself, from `objects/`."""

    file: FileName = Field(description="File in objects/.")
    when: Criteria = Field(default={}, description="Criteria under which they are applied.")


ClusterKind = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/([A-Z][A-Za-z]+|\*)$")]
"""A cluster-wide kind as GROUP/KIND; `*` for every kind of a group."""


class IgnoredDifference(Section):
    """A field of the release's objects that others write: Argo CD neither counts it as drift nor writes it back."""

    group: Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]*$")] = Field(description="API group.")
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z]+$")] = Field(
        description="Kind, exactly as the API has it: another spelling matches nothing, in silence."
    )
    jq: Annotated[tuple[str, ...], Listed, Field(min_length=1)] = Field(description="jq paths of the fields.")


class Component(Section):
    """One chart (or one upstream manifest) as data."""

    stage: StageName = Field(description="Stage that installs it.")
    when: Criteria = Field(default={}, description="Criteria under which it is planned; none: always.")
    chart: str = Field(default="", description="Chart name; empty for a manifest.")
    repo: Url | None = Field(default=None, description="Chart repository; none: the spec must give it.")
    manifest: Url | None = Field(default=None, description="URL of an upstream manifest, with {version}.")
    version: ChartVersion | None = Field(default=None, description="Exact version; none: the spec must give it.")
    from_spec: Mapping[Literal["repo", "version", "namespace"], str] = Field(
        default={}, description="Paths in the spec that give them."
    )
    app_version: str | None = Field(default=None, description="Version of the application in that chart version.")
    digest: Digest | None = Field(default=None, description="Digest of the chart.")
    namespace: DnsLabel | None = Field(default=None, description="Target namespace.")
    privileged: bool = Field(default=False, description="Whether the namespace needs the privileged pod security level.")
    release_name: DnsLabel | None = Field(default=None, description="Helm release; default: the id with dashes.")
    values: FileName | None = Field(default=None, description="File in values/.")
    objects: Annotated[tuple[ObjectFile, ...], Listed] = Field(default=(), description="Objects applied after it.")
    gates: Annotated[tuple[str, ...], Listed] = Field(default=(), description="Gates that judge it.")
    needs: Annotated[tuple[SnakeId, ...], Listed] = Field(default=(), description="Components that come first, where planned.")
    crds: Annotated[tuple[str, ...], Listed] = Field(default=(), description="CRDs it brings.")
    kubernetes: KubernetesRange | None = Field(default=None, description="Kubernetes versions it supports.")
    lines: Annotated[tuple[str, ...], Listed] = Field(
        default=(),
        description="Release lines (majors), oldest first; an upgrade stays in its own or goes to the next.",
    )
    provides: Annotated[tuple[Provision, ...], Listed] = Field(default=(), description="Capabilities that may exist once.")
    cluster_kinds: Annotated[tuple[ClusterKind, ...], Listed] = Field(
        default=(), description="Cluster-wide kinds that the chart makes beside CRDs, roles and webhooks."
    )
    other_namespaces: Annotated[tuple[DnsLabel, ...], Listed] = Field(
        default=(), description="Further namespaces in which the chart makes objects."
    )
    ignore_differences: Annotated[tuple[IgnoredDifference, ...], Listed] = Field(
        default=(), description="Fields that others write, for Argo CD."
    )
    rollout: RolloutKind | None = Field(default=None, description="How its workloads change.")
    health: Sentence | None = Field(default=None, description="What shows that it works.")
    rollback: Sentence | None = Field(default=None, description="How to go back.")
    timeout: Duration = Field(default="5m", validate_default=True, description="Helm's time for one install.")
    sources: Mapping[str, Sentence] = Field(default={}, description="Where each fact is from.")

    @model_validator(mode="after")
    def _chart_or_manifest(self) -> "Component":
        if bool(self.chart) == (self.manifest is not None):
            raise problem("a component is either a chart or a manifest", "give one of chart and manifest")
        return self


class OverlayPart(Section):
    """What an overlay changes on one component."""

    version: ChartVersion | None = Field(default=None, description="Version instead of the catalog's.")
    repo: Url | None = Field(default=None, description="Repository instead of the catalog's.")
    enabled: bool | None = Field(default=None, description="Plans the component, or leaves it out, whatever its own criteria.")
    values: Mapping[str, Any] = Field(default={}, description="Helm values merged over those before.")


class Overlay(Section):
    """A change under criteria: `base` names the overlay it refines, which is applied before it."""

    base: str | None = Field(default=None, description="Overlay that this one refines; its criteria hold too.")
    criteria: Criteria = Field(default={}, description="When it applies; none: always.")
    why: Sentence = Field(description="Why it exists, with its source.")
    components: Mapping[SnakeId, OverlayPart] = Field(description="Changes by component.")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer that made a release's values: `values/x.yaml`, `overlay NAME` or `spec overrides.x`, and the keys it set."""

    origin: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """A planned release: everything an apply task and its gates need, and where each part came from.

    `chart` and `repo` are as HelmChart wants them (an OCI chart has its whole address in `chart`); for an upstream manifest
    both are empty and `manifest` is its URL. `source` names the origin in one string. `other_digests` are given beside `digest`
    for the same version; `upgrade_from` are the lines that may be upgraded to it, empty without such a rule. `app_version` is that
    of the application inside, empty where not known.
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
    provenance: tuple[Layer, ...] = field(default=())
    other_digests: tuple[str, ...] = ()
    upgrade_from: tuple[str, ...] = ()
    app_version: str = ""
    cluster_kinds: tuple[str, ...] = ()
    other_namespaces: tuple[str, ...] = ()
    ignore_differences: tuple[IgnoredDifference, ...] = ()
