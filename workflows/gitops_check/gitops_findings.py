"""Findings of a check, the table of its rules, and what a check could not look at."""

from __future__ import annotations

from dataclasses import dataclass

from steps.contract import plain_text
from steps.contract.verdict import FailureClass
from workflows.spec.errors import Severity

_CUT = 120
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class CheckRule:
    """A rule of the check: its usual severity, the failure class of what it prevents, and what it is about."""

    severity: Severity
    failure_class: FailureClass
    about: str


_C = FailureClass
RULES: dict[str, CheckRule] = {
    # ---- files
    "yaml-invalid": CheckRule("error", _C.MANIFEST_GENERATION, "files that are no YAML"),
    "yaml-duplicate-key": CheckRule("error", _C.MANIFEST_GENERATION, "keys that are written twice"),
    "file-refused": CheckRule("warning", _C.MANIFEST_GENERATION, "links out or to nothing, special and too large files"),
    # ---- sources
    "revision-floats": CheckRule("error", _C.MANIFEST_GENERATION, "targetRevision HEAD, branches, ranges of chart versions"),
    "dependency-floats": CheckRule("error", _C.MANIFEST_GENERATION, "ranges of versions of charts, remote bases without ref"),
    "insecure-repository": CheckRule("warning", _C.MANIFEST_GENERATION, "repositories without TLS"),
    "source-missing": CheckRule("error", _C.MANIFEST_GENERATION, "paths and value files that are not there"),
    "nothing-to-apply": CheckRule("error", _C.MANIFEST_GENERATION, "folders without manifests, subfolders that are not read"),
    "placeholder": CheckRule("error", _C.MANIFEST_GENERATION, "REPLACE_ME, CHANGEME, <…>, example.com"),
    # ---- charts
    "values-outside-key": CheckRule("error", _C.MANIFEST_GENERATION, "values that no chart reads"),
    "value-misspelt": CheckRule("error", _C.MANIFEST_GENERATION, "keys of values that are nearly a key of the chart"),
    "value-type": CheckRule("error", _C.MANIFEST_GENERATION, "values of another type than the chart's"),
    "value-unknown": CheckRule("warning", _C.MANIFEST_GENERATION, "keys that the chart's published values do not have"),
    "glob-matches-nothing": CheckRule("error", _C.MANIFEST_GENERATION, ".Files.Glob and .Files.Get without a file"),
    "script-map-unwired": CheckRule("warning", _C.RUNTIME, "ConfigMaps of scripts that no value names"),
    "render-failed": CheckRule("error", _C.MANIFEST_GENERATION, "charts that helm template refuses"),
    # ---- comparison
    "ignore-not-respected": CheckRule("error", _C.COMPARISON, "ignoreDifferences without RespectIgnoreDifferences"),
    "ignore-matches-nothing": CheckRule("error", _C.COMPARISON, "ignoreDifferences with a kind or path that matches nothing"),
    "self-heal-fights-scaling": CheckRule("error", _C.COMPARISON, "selfHeal against an autoscaler or a person"),
    "known-type-fields": CheckRule("error", _C.COMPARISON, "NodeSets without knownTypeFields in argocd-cm"),
    "resource-owned-twice": CheckRule("error", _C.COMPARISON, "objects of two Applications"),
    # ---- apply
    "namespace-missing": CheckRule("error", _C.APPLY, "namespaces that nobody creates"),
    "immutable-job": CheckRule("error", _C.APPLY, "Jobs that the next change cannot update"),
    "prune-deletes-claims": CheckRule("error", _C.APPLY, "volume claims that a prune deletes"),
    "cascade-deletes": CheckRule("warning", _C.APPLY, "Applications whose removal deletes a running cluster"),
    "field-unknown": CheckRule("error", _C.APPLY, "fields that a kind does not have"),
    "field-missing": CheckRule("error", _C.APPLY, "fields that a kind requires"),
    "field-type": CheckRule("error", _C.APPLY, "fields of another type"),
    "login-service-policy": CheckRule("error", _C.APPLY, "externalTrafficPolicy on a ClusterIP service"),
    # ---- health
    "wave-not-awaited": CheckRule("warning", _C.HEALTH, "sync waves of Applications whose health Argo CD does not judge"),
    "node-group-off": CheckRule("warning", _C.HEALTH, "node groups of Slurm that are not enabled"),
    # ---- permission
    "secret-in-clear": CheckRule("error", _C.PERMISSION, "secrets that are written out"),
    "project-forbids": CheckRule("error", _C.PERMISSION, "AppProjects that do not allow a source or destination"),
    "namespace-not-privileged": CheckRule("warning", _C.PERMISSION, "namespaces of slurmd without the privileged level"),
    # ---- runtime
    "image-floats": CheckRule("error", _C.RUNTIME, "images without tag or with latest, also newTag of a kustomization"),
    "script-not-runnable": CheckRule("error", _C.RUNTIME, "prologs and epilogs that cannot start, and so drain nodes"),
    "gang-missing": CheckRule("warning", _C.RUNTIME, "jobs of several pods that may be placed in part"),
    "login-update-kills-sessions": CheckRule("error", _C.RUNTIME, "login pods that a sync replaces"),
    "lock-toleration-missing": CheckRule("error", _C.RUNTIME, "pods that SUNK's lock taint evicts"),
    "gres-form": CheckRule("error", _C.RUNTIME, "gresGpu that is not TYPE:COUNT"),
    "gpu-not-requested": CheckRule("error", _C.RUNTIME, "node groups whose GPUs are not in requests and limits"),
    # ---- dependency
    "sync-order": CheckRule("error", _C.DEPENDENCY, "custom resources before their CRDs and operator"),
    "operator-missing": CheckRule("warning", _C.DEPENDENCY, "charts whose operator no Application installs"),
    "capability-twice": CheckRule("error", _C.DEPENDENCY, "two device plugins, two Node Feature Discoveries"),
    "chart-version-unknown": CheckRule("error", _C.DEPENDENCY, "SUNK from 8.0, another architecture"),
    "obsolete-database": CheckRule("warning", _C.DEPENDENCY, "the MySQL subchart instead of MOCO"),
}
"""Every rule by its id, in the order of the failure classes."""


@dataclass(frozen=True, slots=True, order=True)
class GitopsFinding:
    """A trap in the tree: where, what is wrong, and the fix. `line` is 0 if no line shows it; secrets have no `value`."""

    path: str
    line: int
    rule: str
    severity: str
    failure_class: str
    problem: str
    fix: str
    value: str = ""

    @property
    def place(self) -> str:
        """Return FILE:LINE, or the file alone."""
        return f"{self.path}:{self.line}" if self.line else self.path


def finding(
    rule: str, where: tuple[str, int], problem: str, fix: str, *, value: object = "", severity: Severity | None = None
) -> GitopsFinding:
    """Return a finding of a rule; texts from the tree become one harmless line."""
    known = RULES[rule]
    shown = plain_text.truncate(plain_text.line(str(value)), _CUT) if value not in ("", None) else ""
    return GitopsFinding(
        path=plain_text.line(where[0]),
        line=where[1],
        rule=rule,
        severity=severity or known.severity,
        failure_class=known.failure_class.value,
        problem=plain_text.line(problem),
        fix=plain_text.line(fix),
        value=shown,
    )


@dataclass(frozen=True, slots=True, order=True)
class UncheckedPart:
    """A part of the tree that the check did not look at, and why. Such a part is never counted as clean."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"
