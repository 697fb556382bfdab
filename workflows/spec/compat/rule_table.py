"""The table of compatibility rules: small pure functions, each registered with its id, severity and public source.

Rules read a spec and the releases that the catalog plans for it. The spec may not import the catalog, so the catalog hands its
releases down as `ReleaseFacts`, which hold the few facts that rules need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from workflows.spec.accelerators import kubernetes
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.errors import Issue, Severity
from workflows.spec.parsing.document import value_at

T = TypeVar("T")

USES_BROKEN = (AttributeError, TypeError, ValueError, KeyError)
"""Errors that the use of a broken section raises (see `validation_errors.BROKEN`)."""


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """A planned chart release as rules see it.

    `least` and `most` are Kubernetes versions (`1.34.2`, `1.35`), empty without a limit. `strict` is False if a version above
    `most` is only undocumented, not known to fail. `schema` is the shape of the chart's values (see `value_shapes`; empty
    if unknown), `schema_source` its origin, and `is_pinned` is True if it stands for this version. `kinds` has the shapes of
    objects by GROUP/VERSION/KIND.
    """

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
    schema: Any = field(default_factory=dict)
    schema_source: str = ""
    is_pinned: bool = True
    kinds: Mapping[str, Any] = field(default_factory=dict)

    def value(self, path: str) -> Any:
        """Return the Helm value at a dotted path, None if there is none."""
        return value_at(self.values, path)


@dataclass(frozen=True, slots=True)
class Platform:
    """The input of every rule: a spec and its planned releases by id. `is_whole` is False if sections of the spec are broken."""

    spec: ClusterSpec
    releases: Mapping[str, ReleaseFacts]
    is_whole: bool = True

    def parts(self, *parts: Iterable[T]) -> Iterator[T]:
        """Yield from parts of a rule that read different sections; a part that meets a broken section ends, and the next begins."""
        for part in parts:
            try:
                yield from part
            except USES_BROKEN:
                if self.is_whole:
                    raise

    @property
    def kubernetes(self) -> tuple[int, int, int]:
        """The Kubernetes version that the spec installs."""
        return kubernetes(self.spec.rke2.version)


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A violation of a rule by a spec; `path` is the key at fault. `severity` is None if it is that of the rule."""

    path: str
    problem: str
    fix: str
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class CompatibilityRule:
    """A compatibility rule, as `bringup explain ID` prints it.

    `source` is the public page or upstream issue that the rule rests on. `later` names the gates that check the part which only the
    running cluster can show.
    """

    id: str
    severity: Severity
    sentence: str
    source: str
    later: tuple[str, ...]
    find: Callable[[Platform], Iterator[RuleFinding]]


RULES: dict[str, CompatibilityRule] = {}
"""All compatibility rules by id. Modules of this folder fill the table when they are imported."""

Find = Callable[[Platform], Iterator[RuleFinding]]


def rule(id: str, severity: Severity, *, source: str, later: tuple[str, ...] = ()) -> Callable[[Find], Find]:
    """Register a function as a rule. The docstring of the function is the sentence of the rule."""

    def register(find: Find) -> Find:
        RULES[id] = CompatibilityRule(id, severity, " ".join((find.__doc__ or "").split()), source, later, find)
        return find

    return register


def issue(violated: CompatibilityRule, finding: RuleFinding) -> Issue:
    """Return a rule's finding as an issue, with id, severity and source of the rule."""
    severity = finding.severity or violated.severity
    return Issue(violated.id, severity, finding.path, finding.problem, finding.fix, violated.source, violated.later)


def releases_outside_range(platform: Platform, *ids: str) -> Iterator[RuleFinding]:
    """Yield a finding for each of these releases that does not support the Kubernetes version of the spec."""
    running = platform.kubernetes
    for release in (platform.releases[name] for name in ids if name in platform.releases):
        name = f"{release.id} {release.version}"
        if release.least and running < _version(release.least):
            yield RuleFinding(
                "rke2.version", f"{name} needs Kubernetes {release.least} or later", f"use RKE2 v{release.least} or later"
            )
        if release.most and running[:2] > _version(release.most)[:2]:
            known = "supports" if release.strict else "is documented for"
            severity: Severity | None = None if release.strict else "warning"
            fix = f"use RKE2 v{release.most} or earlier"
            yield RuleFinding("rke2.version", f"{name} {known} Kubernetes up to {release.most}", fix, severity)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
