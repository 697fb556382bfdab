"""Checks that charts are deployed and that the API server serves the kinds they install."""

from collections.abc import Iterable

from steps.contract.crds import ChartsExpectation, ChartsObservation, Crd
from steps.contract.plural import count
from steps.contract.verdict import FailureClass, Verdict, inconclusive, passed
from steps.stages.shared import gate_charts


def with_charts(gate: str, seen: ChartsObservation, want: ChartsExpectation) -> Verdict:
    """Check that the charts are deployed and their CRDs established, so that resources of these kinds can be applied."""
    return (
        gate_charts.problem(gate, seen.releases, want.releases, seen.root_app, want.root_app)
        or missing_crd(gate, seen.crds, want.crds)
        or passed(
            gate, f"{', '.join(release.name for release in want.releases)} deployed, {count(len(want.crds), 'CRD')} established"
        )
    )


def missing_crd(gate: str, seen: Iterable[Crd], want: Iterable[str]) -> Verdict | None:
    """Return inconclusive for the first wanted CRD that the API server does not serve; None if all are established."""
    by_name = {crd.name: crd for crd in seen}
    for name in want:
        crd = by_name.get(name)
        if crd is None or not crd.established:
            state = "does not exist" if crd is None else f"is not established {crd.message}".rstrip()
            return inconclusive(
                gate,
                seen=f"CRD {name} {state}",
                expected="condition Established",
                next_step="see whether its chart brings CRDs (crds.enabled, upgradeCRDs), and who else owns the name",
                failure_class=FailureClass.DEPENDENCY,
            )
    return None
