"""Reads charts together with the CRDs that they install."""

from collections.abc import Iterable

from steps.contract.crds import ChartsObservation, Crd
from steps.stages.shared import probe_charts
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_workloads import Conditioned


def with_charts(kube: KubeReader, scope: Scope) -> ChartsObservation:
    """Return the charts that a task names, and their CRDs."""
    return ChartsObservation(
        releases=probe_charts.observe(kube, probe_charts.scoped(scope)),
        root_app=probe_charts.root(kube, scope),
        crds=read_crds(kube, probe_charts.asked(scope, "crds")),
    )


def read_crds(kube: KubeReader, names: Iterable[str]) -> tuple[Crd, ...]:
    """Return the CRDs of these names with their state; those that do not exist are left out."""
    crds = ((name, kube.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", Conditioned)) for name in names)
    return tuple(_crd(name, raw) for name, raw in crds if raw is not None)


def _crd(name: str, raw: Conditioned) -> Crd:
    conditions = {entry.type: entry for entry in raw.status.conditions}
    established, accepted = conditions.get("Established"), conditions.get("NamesAccepted")
    refused = accepted.message if accepted and accepted.status == "False" else ""
    return Crd(name=name, established=bool(established and established.status == "True"), message=refused)
