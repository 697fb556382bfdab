"""Compatibility rules P01 to P43: combinations in a valid spec that are known not to work, found before anything runs.

`RULES` is the table of rules (id, severity, sentence, source, gates that check the rest at run time). `check` runs them all.
"""

from collections.abc import Collection, Iterable, Iterator

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.compat import (
    archives,
    gpu,
    kubernetes,
    network_paths,
    networks,
    override_values,
    plausible,
    releases,
    slurm,
    system,
    taints,
)
from workflows.spec.compat.rule_table import (
    RULES,
    USES_BROKEN,
    CompatibilityRule,
    Platform,
    ReleaseFacts,
    RuleFinding,
    issue,
)
from workflows.spec.errors import Issue

__all__ = [
    "RULES",
    "USES_BROKEN",
    "CompatibilityRule",
    "Platform",
    "ReleaseFacts",
    "RuleFinding",
    "archives",
    "check",
    "check_sound",
    "gpu",
    "kubernetes",
    "network_paths",
    "networks",
    "override_values",
    "plausible",
    "releases",
    "slurm",
    "system",
    "taints",
]


def check(spec: ClusterSpec, planned: Iterable[ReleaseFacts]) -> tuple[Issue, ...]:
    """Return the issues that all rules find in a spec and its planned releases, errors first, then sorted by rule."""
    platform = Platform(spec, {release.id: release for release in planned})
    issues = [issue(rule, finding) for rule in RULES.values() for finding in rule.find(platform)]
    return tuple(sorted(issues, key=lambda entry: (entry.severity != "error", entry.rule, entry.path)))


def check_sound(spec: ClusterSpec, planned: Iterable[ReleaseFacts], rules: Collection[str] = RULES) -> tuple[Issue, ...]:
    """Return what the named rules find in a spec with broken sections; a part of a rule that needs one of these is skipped."""
    platform = Platform(spec, {release.id: release for release in planned}, is_whole=False)
    return tuple(issue(RULES[name], finding) for name in rules for finding in _until_broken(RULES[name], platform))


def _until_broken(rule: CompatibilityRule, platform: Platform) -> Iterator[RuleFinding]:
    try:
        yield from rule.find(platform)
    except USES_BROKEN:
        return
