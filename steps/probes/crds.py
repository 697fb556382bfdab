"""Reads what the cluster shows of charts, and whether its API server serves their kinds."""

from collections.abc import Iterable

from steps.contract.crds import ChartsObservation, Crd
from steps.probes import charts
from steps.probes.reader import KubeReader, Scope
from steps.probes.workloads import Conditioned


def with_charts(kube: KubeReader, scope: Scope) -> ChartsObservation:
    """The charts that a task is about, and their kinds."""
    return ChartsObservation(
        releases=charts.observe(kube, charts.scoped(scope)),
        root_app=charts.root(kube, scope),
        crds=read_crds(kube, charts.asked(scope, "crds")),
    )


def read_crds(kube: KubeReader, names: Iterable[str]) -> tuple[Crd, ...]:
    """Whether the API server serves these kinds; those that do not exist are left out."""
    found = ((name, kube.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", Conditioned)) for name in names)
    return tuple(_crd(name, raw) for name, raw in found if raw is not None)


def _crd(name: str, raw: Conditioned) -> Crd:
    conditions = {entry.type: entry for entry in raw.status.conditions}
    established, accepted = conditions.get("Established"), conditions.get("NamesAccepted")
    refused = accepted.message if accepted and accepted.status == "False" else ""
    return Crd(name=name, established=bool(established and established.status == "True"), message=refused)
