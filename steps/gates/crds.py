"""Whether charts are deployed, and the kinds that they bring are served."""

from collections.abc import Iterable

from steps.contract.crds import ChartsExpectation, ChartsObservation, Crd
from steps.contract.plural import count
from steps.contract.verdict import FailureClass, Verdict, inconclusive, passed
from steps.gates import charts


def with_charts(gate: str, seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """The charts are deployed and their kinds are served, so that resources of these can be applied."""
    return (
        charts.problem(gate, seen.releases, want.releases, seen.root_app, want.root_app)
        or missing_crd(gate, seen.crds, want.crds)
        or passed(gate, f"{', '.join(one.name for one in want.releases)} deployed, {count(len(want.crds), 'CRD')} established")
    )


def missing_crd(gate: str, seen: Iterable[Crd], want: Iterable[str]) -> Verdict | None:
    """The first wanted CRD that the API server does not serve."""
    by_name = {crd.name: crd for crd in seen}
    for name in want:
        crd = by_name.get(name)
        if crd is None or not crd.established:
            had = "does not exist" if crd is None else f"is not established {crd.message}".rstrip()
            return inconclusive(
                gate,
                seen=f"CRD {name} {had}",
                expected="condition Established",
                next_step="see whether its chart brings CRDs (crds.enabled, upgradeCRDs), and who else owns the name",
                failure_class=FailureClass.DEPENDENCY,
            )
    return None
