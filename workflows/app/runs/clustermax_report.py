"""The table of ClusterMAX for one run: each item is pass, fail, unverified or attested, from the run's own evidence."""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from steps.contract.verdict import Status
from steps.report import model
from workflows.catalog import clustermax
from workflows.catalog.clustermax import AuditItem, AuditTable
from workflows.spec.accelerators import numbers

PASS, FAIL, UNVERIFIED, ATTESTED = "pass", "fail", "unverified", "attested"


class AuditRow(Struct, frozen=True, kw_only=True):
    """An item of the table with its status in one run, and what shows it."""

    id: str
    status: str
    shown: str


def rows(report: model.Report, known: AuditTable | None = None) -> list[AuditRow]:
    """Return a row for each item. Only a pass of every gate of an item counts: a gate that did not run leaves it unverified."""
    chosen = known or clustermax.table()
    gates = {gate.gate: gate.status for stage in report.stages for gate in stage.gates}
    return [_row(item, gates, report, chosen) for item in chosen.items]


def text(report: model.Report) -> str:
    """Return the table as text, with a summary and a warning if the floors of versions are stale."""
    table = rows(report)
    width = max(len(row.id) for row in table)
    counts = Counter(row.status for row in table)
    lines = [f"{row.id:<{width}}  {row.status:<10}  {row.shown}" for row in table]
    summary = ", ".join(f"{counts[status]} {status}" for status in (PASS, FAIL, UNVERIFIED, ATTESTED))
    lines += ["", f"ClusterMAX, run {report.run}: {summary} of {len(table)} items; unverified and attested items do not count"]
    floors = clustermax.table().floors
    if floors.is_stale(datetime.date.today()):
        lines.append(f"warning: the floors of versions are of {floors.date.isoformat()} ({floors.source}): read them again")
    return "\n".join(lines) + "\n"


def _row(item: AuditItem, gates: Mapping[str, str], report: model.Report, known: AuditTable) -> AuditRow:
    if item.attested:
        return AuditRow(id=item.id, status=ATTESTED, shown=item.why)
    if item.versions:
        status, shown = _versions(item.versions, report, known)
        return AuditRow(id=item.id, status=status, shown=shown)
    if not item.gates:
        return AuditRow(id=item.id, status=UNVERIFIED, shown=item.why)
    failed = [gate for gate in item.gates if gates.get(gate) == Status.FAIL.value]
    open_gates = [gate for gate in item.gates if gates.get(gate) != Status.PASS.value]
    if failed:
        return AuditRow(id=item.id, status=FAIL, shown=f"{', '.join(failed)} failed")
    if open_gates:
        states = ", ".join(f"{gate} {gates.get(gate, 'is not in this run')}" for gate in open_gates)
        return AuditRow(id=item.id, status=UNVERIFIED, shown=states)
    if unmeasured := [name for name in item.measured if not _is_measured(name, item.gates, report)]:
        return AuditRow(id=item.id, status=UNVERIFIED, shown=f"not measured and judged on every node: {', '.join(unmeasured)}")
    return AuditRow(id=item.id, status=PASS, shown=", ".join(item.gates))


def _is_measured(quantity: str, gates: Iterable[str], report: model.Report) -> bool:
    """Return True if a quantity has a value of every node that passed the gates, and of one at least, and the gate judged it."""
    passed = {node.name for node in report.nodes if any(node.gates.get(gate) == Status.PASS.value for gate in gates)}
    rows = [row for row in report.measured if row.quantity.startswith(quantity) and not row.unjudged]
    whole = {node for row in rows for node, values in row.values.items() if values and None not in values}
    return bool(rows and passed) and passed <= whole


def _versions(part: str, report: model.Report, known: AuditTable) -> tuple[str, str]:
    """Return the status of versions in use against the floors of their branches: a branch without a floor is unverified."""
    in_use, floors = [*report.versions.get(part, {})], known.floors.versions.get(part, ())
    if not in_use or report.status != Status.PASS.value:
        return UNVERIFIED, f"no version of {part} in a run that passed"
    low = [version for version in in_use if (floor := _branch(version, floors)) and numbers(version) < numbers(floor)]
    strange = [version for version in in_use if not _branch(version, floors)]
    if low:
        return FAIL, f"{part} {', '.join(low)} is below {', '.join(floors)}"
    if strange:
        return UNVERIFIED, f"{part} {', '.join(strange)}: no floor of {known.floors.date.isoformat()} for this branch"
    return PASS, f"{part} {', '.join(in_use)}, floors of {known.floors.date.isoformat()}"


def _branch(version: str, floors: Iterable[str]) -> str:
    return next((floor for floor in floors if numbers(floor)[:1] == numbers(version)[:1]), "")
