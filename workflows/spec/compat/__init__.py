"""Compatibility rules P01–P24 (`gpu_stack §9` and others): what a whole spec says that is known not to work, before anything runs.

`RULES` is the table (id, severity, sentence, source, gates that check the rest at run time); `check` runs them all.
"""

from collections.abc import Iterable

from workflows.spec.cluster import ClusterSpec
from workflows.spec.compat import archives, gpu, kubernetes, reach, releases, system
from workflows.spec.compat.registry import RULES, Finding, PlannedRelease, Platform, Rule, issue
from workflows.spec.errors import Issue

__all__ = [
    "RULES",
    "Finding",
    "PlannedRelease",
    "Platform",
    "Rule",
    "archives",
    "check",
    "gpu",
    "kubernetes",
    "reach",
    "releases",
    "system",
]


def check(spec: ClusterSpec, planned: Iterable[PlannedRelease]) -> tuple[Issue, ...]:
    """Return every issue, errors first, then by rule."""
    platform = Platform(spec, {release.id: release for release in planned})
    found = [issue(rule, finding) for rule in RULES.values() for finding in rule.find(platform)]
    return tuple(sorted(found, key=lambda one: (one.severity != "error", one.rule, one.path)))
