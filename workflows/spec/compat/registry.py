"""How a compatibility rule is written and found: a small pure function, registered with its id and its source.

Rules read a spec and the releases that the catalog makes of it. The catalog stands above the spec and hands its releases down
as `PlannedRelease`, the few facts that rules need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from workflows.spec.cluster import ClusterSpec
from workflows.spec.errors import Issue, Severity
from workflows.spec.products import kubernetes


@dataclass(frozen=True, slots=True)
class PlannedRelease:
    """What rules know of a release; `least` and `most` are Kubernetes versions (`1.34.2`, `1.35`), empty where open."""

    id: str
    version: str
    app_version: str = ""
    digest: str = ""
    other_digests: tuple[str, ...] = ()
    from_manifest: bool = False
    least: str = ""
    most: str = ""
    strict: bool = True
    provides: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    objects: tuple[Mapping[str, Any], ...] = ()

    def value(self, path: str) -> Any:
        """Return the Helm value at a dotted path, or None."""
        here: Any = self.values
        for part in path.split("."):
            here = here.get(part) if isinstance(here, Mapping) else None
        return here


@dataclass(frozen=True, slots=True)
class Platform:
    """What a rule reads: the spec and its releases by id."""

    spec: ClusterSpec
    releases: Mapping[str, PlannedRelease]

    @property
    def kubernetes(self) -> tuple[int, int, int]:
        """The Kubernetes version that the spec installs."""
        return kubernetes(self.spec.rke2.version)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found; `severity` is set where it differs from the rule's own."""

    path: str
    problem: str
    fix: str
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of `gpu_stack §9`: `later` names the gates that check what only the running cluster can show."""

    id: str
    severity: Severity
    sentence: str
    source: str
    later: tuple[str, ...]
    find: Callable[[Platform], Iterator[Finding]]


RULES: dict[str, Rule] = {}
"""Every rule by id."""

Find = Callable[[Platform], Iterator[Finding]]


def rule(id: str, severity: Severity, *, later: tuple[str, ...] = (), source: str = "") -> Callable[[Find], Find]:
    """Register a rule of `gpu_stack §9`, or of another `source`; the function's docstring is the rule's sentence."""

    def register(find: Find) -> Find:
        RULES[id] = Rule(id, severity, (find.__doc__ or "").strip(), source or f"gpu_stack §9 {id}", later, find)
        return find

    return register


def issue(one: Rule, finding: Finding) -> Issue:
    """Return a finding as an issue of its rule."""
    severity = finding.severity or one.severity
    return Issue(one.id, severity, finding.path, finding.problem, finding.fix, one.source, one.later)


def outside(platform: Platform, *ids: str) -> Iterator[Finding]:
    """Yield a finding for each of these releases that does not support the spec's Kubernetes version."""
    running = platform.kubernetes
    for release in (platform.releases[name] for name in ids if name in platform.releases):
        name = f"{release.id} {release.version}"
        if release.least and running < _version(release.least):
            yield Finding(
                "rke2.version", f"{name} needs Kubernetes {release.least} or later", f"use RKE2 v{release.least} or later"
            )
        if release.most and running[:2] > _version(release.most)[:2]:
            known = "supports" if release.strict else "is documented for"
            severity: Severity | None = None if release.strict else "warning"
            fix = f"use RKE2 v{release.most} or earlier"
            yield Finding("rke2.version", f"{name} {known} Kubernetes up to {release.most}", fix, severity)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
