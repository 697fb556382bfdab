"""Check a user's own GitOps tree: read it, render its charts where helm is installed, and judge it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from steps.contract.plain_text import count
from workflows import catalog
from workflows.app.gitops_trees.chart_rendering import render_charts
from workflows.app.gitops_trees.tree_reading import ReadTree, read_earlier, read_folder
from workflows.catalog.model import Component
from workflows.gitops_check import delivery_check
from workflows.gitops_check.delivery_check import DeliveryCheck, SortedState


def check(folder: Path, against: str = "") -> DeliveryCheck:
    """Return the check of a folder; with a folder or a revision of Git in `against` also what a sync would restart.

    Raises UsageError for a folder or revision that is not there, OSError for files that cannot be read.
    """
    components = catalog.load().components
    read = read_folder(folder)
    earlier = _sorted(read_earlier(folder, against), components) if against else None
    return delivery_check.check(_sorted(read, components), components, earlier)


def _sorted(read: ReadTree, components: Mapping[str, Component]) -> SortedState:
    state = delivery_check.sort_state(read.files, render_charts(read.files), components)
    state.tree.findings.extend(read.findings)
    return state


def sentences(result: DeliveryCheck) -> Iterator[str]:
    """Yield the lines below the table: what a sync would restart, what was not checked, and the sum."""
    if result.restarts is not None:
        yield f"a sync would restart: {'nothing that is known' if not result.restarts else ''}".rstrip()
        yield from (f"  {restart}" for restart in result.restarts)
    if result.unchecked:
        yield "not checked:"
        yield from (f"  {part}" for part in result.unchecked)
    yield summary(result)


def summary(result: DeliveryCheck) -> str:
    """Return the sentence that sums up a check."""
    counts = result.counts
    looked_at = (
        f"{count(counts['applications'], 'Application')}, {count(counts['charts'], 'chart')}, {count(counts['objects'], 'object')}"
    )
    parts = f", {count(len(result.unchecked), 'part')} not checked" if result.unchecked else ""
    flaws = f"{count(result.errors, 'error')}, {count(result.warnings, 'warning')}"
    return f"{flaws} in {count(counts['files'], 'file')} ({looked_at}{parts})"
