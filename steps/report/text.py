"""Report → plain lines for a terminal, a log or a mail."""

from steps.report import model
from steps.report.html import span


def text(report: model.Report) -> str:
    """The acceptance report as lines of text; stages as a table, then quarantine, then what to do."""
    width = max((len(stage.id) for stage in report.stages), default=0)
    lines = [f"{report.cluster}: {report.status}: {report.sentence}"]
    lines.append(f"run {report.run}, plan {report.plan[:19]}, took {span(report.finished - report.started)}")
    if report.simulated:
        lines.append("rehearsal: hosts, cluster and figures are simulated")
    lines.append("")
    for stage in report.stages:
        gates = ", ".join(_gate(gate) for gate in stage.gates)
        lines.append(f"{stage.id:<{width}}  {stage.status:<12}  {span(stage.finished - stage.started):>8}  {gates}")
    lines += [f"quarantined {entry.node} in {entry.stage}: {entry.reason}" for entry in report.quarantine]
    for stage in report.stages:
        if stage.status in ("fail", "inconclusive"):
            lines += ["", f"{stage.id} ({stage.failure_class or 'no class'}): {stage.reason}"]
            lines += [f"rollback: {stage.rollback}"] if stage.rollback else []
    return "\n".join(lines) + "\n"


def _gate(gate: model.Gate) -> str:
    nodes = f" {gate.passed}/{gate.expected}" if gate.expected else ""
    return f"{gate.gate.partition('/')[2]} {gate.status}{nodes}"
