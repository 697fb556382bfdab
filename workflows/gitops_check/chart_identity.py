"""Find out which component of the catalog a chart of the tree is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workflows.catalog.model import Component
from workflows.gitops_check.application_objects import ChartUse

_OLD_NAMES = {"nvidia-dra-driver-gpu": "dra_driver", "cert-manager": "cert_manager"}
"""Chart name → component, for names that the catalog's own chart does not have."""


def identify(uses: Iterable[ChartUse], components: Mapping[str, Component]) -> dict[int, str]:
    """Return the component of each use of a chart, by the use's `id`; charts that the catalog does not know are left out."""
    listed = list(uses)
    charts = {use.chart for use in listed}
    by_chart: dict[str, list[str]] = {}
    for name, component in components.items():
        if component.chart:
            by_chart.setdefault(component.chart.rpartition("/")[2], []).append(name)
    names: dict[int, str] = {}
    for use in listed:
        candidates = by_chart.get(use.chart, [])
        if use.chart == "slurm":
            candidates = [_slurm(use, charts)]
        if use.chart in _OLD_NAMES:
            candidates = [_OLD_NAMES[use.chart]]
        # a local chart of such a name is the site's own, and may have any values
        if use.local is None and len(candidates) == 1 and candidates[0] in components:
            names[id(use)] = candidates[0]
    return names


def _slurm(use: ChartUse, charts: set[str]) -> str:
    """Return which of the two charts called `slurm` this is: by repository, by its keys, by the operator beside it."""
    if "slinkyproject" in use.repository.lower() or {"nodesets", "loginsets", "configFiles", "restapi"} & set(use.values):
        return "slurm"
    if "sunk" in charts or {"compute", "slurmConfig", "syncer"} & set(use.values):
        return "sunk_slurm"
    return "slurm" if "slurm-operator" in charts else ""
