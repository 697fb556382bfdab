"""Judges the pods of a fabric test: bandwidth of each rail in each direction, and the outcome of the test.

Reports have the form that `workflows/stages/scripts/fabric_pair.sh` writes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from steps.contract.node_tests.nccl import NcclLog, NcclWant
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import Status
from steps.localise.contract import FabricTest, Outcome, Result
from steps.stages.shared import gate_checks
from steps.stages.validation import gate_nccl


class FabricReading(Struct, frozen=True, kw_only=True):
    """Reading of one test: its outcome, the rails of each node in Gbit/s, and why there is no outcome."""

    outcome: Outcome
    rails: dict[str, tuple[float | None, ...]] = {}
    problem: str = ""


def read_pair(test: FabricTest, pods: Iterable[CheckPod], *, floor: float, rails: int) -> FabricReading:
    """Return the reading of a test in which its nodes meet in pairs, or of one node alone.

    Every pod must have reported from another node of the test, else the result is unknown. The test fails if any rail of the test
    is below the floor in any direction, or is missing.
    """
    by_node = {node: pod for node, pod in gate_checks.by_node(pods).items() if pod.report}
    absent = [node for node in test.nodes if node not in by_node]
    if absent:
        silent = next((pod for pod in pods if not pod.report), None)
        why = gate_checks.why(silent).text if silent else "no pod"
        return _unknown(test, f"{', '.join(absent)}: no report ({why})")
    wanted = tuple(range(rails)) if test.rail is None else (test.rail,)
    measured = {node: _rails(by_node[node].report, rails) for node in test.nodes}
    figures = [row[rail] for row in measured.values() for rail in wanted]
    error = next((text for node in test.nodes if (text := str(by_node[node].report.get("error") or ""))), "")
    if error and all(figure is None for figure in figures):
        return _unknown(test, error[:160])
    least = min((figure or 0.0 for figure in figures), default=0.0)
    result: Result = "pass" if figures and least >= floor else "fail"
    return FabricReading(outcome=Outcome(test=test.id, result=result, figure=least), rails=measured)


def read_group(test: FabricTest, log: NcclLog | None, workers: Sequence[CheckPod], *, want: NcclWant) -> FabricReading:
    """Return the reading of a test over a group: NCCL's log must meet `want`, and the workers ran on exactly the test's nodes."""
    if log is None:
        waiting = next((pod for pod in workers if not pod.ended and pod.phase != "Running"), None)
        return _unknown(test, f"no log of NCCL ({gate_checks.why(waiting).text if waiting else 'the launcher has not ended'})")
    if {pod.node for pod in workers if pod.node} != set(test.nodes):
        return _unknown(test, f"the workers of {len(test.nodes)} nodes ran on {len({pod.node for pod in workers})}")
    finding = gate_nccl.problem(log, want)
    least = min(gate_nccl.bandwidths(log.runs), default=None)
    if finding is not None and finding.status is Status.INCONCLUSIVE:
        return _unknown(test, finding.seen)
    return FabricReading(outcome=Outcome(test=test.id, result="pass" if finding is None else "fail", figure=least))


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a test that was run in several ways: it fails if one way fails, and passes only if all do."""
    order = ("fail", "unknown", "pass")
    return min(outcomes, key=lambda outcome: order.index(outcome.result))


def lowest(
    before: Mapping[str, tuple[float | None, ...]], readings: Iterable[FabricReading]
) -> dict[str, tuple[float | None, ...]]:
    """Return the least bandwidth of each rail of each node: that from before, and that of further readings."""
    rows = dict(before)
    for reading in readings:
        for node, row in reading.rails.items():
            known = rows.get(node)
            rows[node] = row if known is None else tuple(_less(*pair) for pair in zip(known, row, strict=True))
    return rows


def _less(figure: float | None, other: float | None) -> float | None:
    if figure is None or other is None:
        return other if figure is None else figure
    return min(figure, other)


def _rails(report: dict[str, Any], rails: int) -> tuple[float | None, ...]:
    """Return a report's bandwidth by rail, None for a rail that it does not have."""
    row: list[float | None] = [None] * rails
    entries = report.get("rails")
    for entry in entries if isinstance(entries, list) else ():
        number, gbit = (entry.get("rail"), entry.get("gbit")) if isinstance(entry, dict) else (None, None)
        if isinstance(number, int) and 0 <= number < rails and isinstance(gbit, int | float):
            row[number] = float(gbit)
    return tuple(row)


def _unknown(test: FabricTest, problem: str) -> FabricReading:
    return FabricReading(outcome=Outcome(test=test.id, result="unknown"), problem=problem)
