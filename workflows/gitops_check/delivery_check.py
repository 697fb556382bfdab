"""Check a tree of files: sort them, apply every rule, and compare it with an earlier state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from workflows.catalog.model import Component
from workflows.gitops_check import (
    application_rules,
    chart_rules,
    manifest_rules,
    ownership_rules,
    slurm_rules,
    sync_impact,
)
from workflows.gitops_check.application_objects import ChartUse, DeliveredApplication, applications, chart_uses
from workflows.gitops_check.chart_identity import identify
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, rendered_manifests, sort_files
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.gitops_check.sync_impact import Restart, TreeState
from workflows.gitops_check.yaml_stream import BadStream


@dataclass(frozen=True, slots=True)
class RenderedChart:
    """Result of `helm template` for a folder: its text, or why it failed, or why it, or a part of it, was not rendered."""

    folder: str
    text: str = ""
    failure: str = ""
    not_rendered: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryCheck:
    """The result of a check: findings, parts that were not checked, what a sync would restart, and how much was looked at."""

    findings: tuple[GitopsFinding, ...]
    unchecked: tuple[UncheckedPart, ...]
    restarts: tuple[Restart, ...] | None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """Return how many findings are errors."""
        return sum(entry.severity == "error" for entry in self.findings)

    @property
    def warnings(self) -> int:
        """Return how many findings are warnings."""
        return len(self.findings) - self.errors

    @property
    def by_class(self) -> dict[str, int]:
        """Return the number of findings of each of the seven failure classes of a GitOps delivery."""
        return {name: sum(entry.failure_class == name for entry in self.findings) for name in CLASSES}


CLASSES = tuple(kind.value for kind in list(FailureClass)[:7])
"""The seven classes of failures of a GitOps delivery, in the order in which a delivery meets them."""


@dataclass(frozen=True, slots=True)
class SortedState:
    """One state of a tree, sorted, with its Applications, charts and rendered objects."""

    tree: DeliveryTree
    delivered: list[DeliveredApplication]
    uses: list[ChartUse]
    names: Mapping[int, str]
    rendered: Mapping[str, list[DeliveredObject]]

    @property
    def manifests(self) -> list[DeliveredObject]:
        """Return all whole objects: of files, and of rendered charts."""
        return [*self.tree.all_manifests(), *(entry for made in self.rendered.values() for entry in made)]

    @property
    def state(self) -> TreeState:
        """Return what a comparison needs."""
        return TreeState(tuple(self.manifests), tuple(self.uses), self.names)


def sort_state(files: Mapping[str, str], rendered: Iterable[RenderedChart], components: Mapping[str, Component]) -> SortedState:
    """Return the sorted state of these files, with findings and unchecked parts of reading and rendering in its tree."""
    tree, made = sort_files(files), dict[str, list[DeliveredObject]]()
    for chart in rendered:
        path = f"{chart.folder}/Chart.yaml".lstrip("/")
        if chart.failure:
            words = f"helm template fails: {chart.failure}"
            tree.findings.append(finding("render-failed", (path, 0), words, "run helm template on the chart, and correct it"))
            continue
        if chart.not_rendered:
            tree.unchecked.append(UncheckedPart(path, chart.not_rendered))
        if chart.text:
            try:
                made[chart.folder] = rendered_manifests(chart.folder or ".", chart.folder or ".", chart.text)
            except BadStream as problem:
                words = f"what helm renders is no YAML: {problem.problem} (line {problem.line} of the output)"
                tree.findings.append(finding("render-failed", (path, 0), words, "quote values in the templates"))
    delivered = applications(tree)
    uses = chart_uses(tree, delivered)
    return SortedState(tree, delivered, uses, identify(uses, components), made)


def check(after: SortedState, components: Mapping[str, Component], before: SortedState | None = None) -> DeliveryCheck:
    """Return the check of a state; with an earlier one also what a sync between them would restart."""
    results = [*after.tree.findings, *after.tree.unchecked, *_results(after, components)]
    if before is not None:
        results += sync_impact.unjudged(before.state, after.state)
    tree = after.tree
    return DeliveryCheck(
        findings=tuple(sorted({entry for entry in results if isinstance(entry, GitopsFinding)})),
        unchecked=tuple(sorted({entry for entry in results if isinstance(entry, UncheckedPart)})),
        restarts=tuple(sync_impact.restarts(before.state, after.state)) if before else None,
        counts={
            "files": len(tree.files),
            "applications": len(after.delivered),
            "charts": len(tree.charts),
            "kustomizations": len(tree.kustomizations),
            "objects": len(after.manifests),
        },
    )


def _results(state: SortedState, components: Mapping[str, Component]) -> Iterator[GitopsFinding | UncheckedPart]:
    tree, delivered, uses, names = state.tree, state.delivered, state.uses, state.names
    is_read = tree.manifests or tree.charts or tree.kustomizations or tree.other
    if not is_read and not any(entry.severity == "error" for entry in tree.findings):
        words = f"none of {count(len(tree.files), 'file')} is a manifest, chart, kustomization or values file: nothing was checked"
        yield finding("nothing-to-apply", (".", 0), words, "name the folder that Argo CD reads")
    known = {key: (name, components[name]) for key, name in names.items()}
    owned = ownership_rules.owned_objects(tree, delivered, state.rendered)
    yield from application_rules.source_findings(tree, delivered)
    yield from application_rules.outside_sources(tree, delivered)
    yield from application_rules.comparison_findings(delivered)
    yield from application_rules.project_findings(tree, delivered)
    yield from ownership_rules.unknown_projects(delivered, tree)
    yield from ownership_rules.duplicate_findings(owned, uses)
    yield from ownership_rules.scaling_findings(state.manifests, owned)
    yield from ownership_rules.manual_scaling_findings(tree, uses)
    yield from ownership_rules.deletion_findings(delivered, owned)
    yield from ownership_rules.namespace_findings(tree, delivered, owned)
    yield from ownership_rules.privilege_findings(tree, uses, {key: component for key, (_, component) in known.items()})
    yield from ownership_rules.order_findings(uses, known, owned)
    node_sets = slurm_rules.node_set_groups(tree, uses, names) if delivered else {}
    yield from ownership_rules.settings_findings(tree, delivered, uses, node_sets)
    yield from chart_rules.chart_findings(tree)
    yield from chart_rules.value_findings(uses, names)
    yield from chart_rules.kustomization_findings(tree)
    yield from manifest_rules.text_findings(tree)
    yield from manifest_rules.image_findings(state.manifests)
    yield from manifest_rules.image_value_findings(tree)
    yield from manifest_rules.job_findings(owned)
    yield from manifest_rules.gang_findings(state.manifests)
    yield from manifest_rules.schema_findings(state.manifests)
    yield from slurm_rules.slurm_findings(uses, names)
    yield from slurm_rules.need_findings(uses, names, components)
    if {"sunk", "sunk_slurm"} & set(names.values()):
        yield from slurm_rules.lock_findings(state.manifests)
