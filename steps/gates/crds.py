"""Whether the kinds that a chart brings are served."""

from collections.abc import Iterable

from steps.contract.stages.base_services import Crd
from steps.contract.verdict import FailureClass, Verdict, inconclusive


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
