"""Renders a report as plain lines for a terminal, a log or a mail."""

from steps.report import drawings, factory_phases, model
from steps.report.drawings import span


def text(report: model.Report) -> str:
    """Return the acceptance report as lines of text: stages as a table, then quarantine, then what to do."""
    width = max((len(stage.id) for stage in report.stages), default=0)
    lines = [f"{report.cluster}: {report.badge}: {report.sentence}"]
    lines += [f"class of the failure: {kind}" for kind in _classes(report)]
    lines.append(f"run {report.run}, plan {report.plan[:19]}, took {span(report.finished - report.started)}")
    lines += ["operation " + ": ".join(filter(None, (report.operation, report.upgraded)))] if report.operation else []
    lines += [f"spec {report.source.sentence}"] if report.source else []
    if report.simulated:
        lines.append("rehearsal: hosts, cluster and figures are simulated")
    lines.append("")
    for stage in report.stages:
        took = span(stage.finished - stage.started) if stage.started else "-"
        lines.append(f"{stage.id:<{width}}  {stage.status:<12}  {took:>8}  {_said(stage)}")
    lines += [phase.sentence for phase in factory_phases.phases(report.stages, simulated=report.simulated)]
    lines += [_measured(tile) for tile in drawings.measured_tiles(report)]
    lines += [f"note on {stage.id}: {note}" for stage in report.stages for note in stage.notes]
    lines += [f"quarantined {entry.node} in {entry.stage}: {entry.reason}" for entry in report.quarantine]
    for stage in report.stages:
        if stage.status in ("fail", "inconclusive"):
            lines += ["", *_trouble(stage, report.sentence)]
    lines += ["", report.acceptance] if report.acceptance else []
    return "\n".join(lines) + "\n"


def _measured(tile: drawings.Tile) -> str:
    return f"measured {tile.label}: {tile.value} ({tile.note})"


def _classes(report: model.Report) -> list[str]:
    """Return the failure class of the stage that the headline names, as a list of one; empty if there is none."""
    in_headline = (stage for stage in report.with_opening if report.sentence.startswith(f"{stage.id}: "))
    return [stage.failure_class for stage in in_headline if stage.failure_class]


def _said(stage: model.StageReport) -> str:
    """Return the results of a stage's gates as text, or the reason why none ran."""
    if not stage.judged and all(gate.status == model.NOT_RUN for gate in stage.gates):
        return stage.reason
    gates = ", ".join(_gate(gate) for gate in stage.gates)
    return f"{gates}; {stage.hosts}" if stage.hosts else gates


def _gate(gate: model.GateReport) -> str:
    nodes = f" {gate.passed}/{gate.expected}" if gate.expected else ""
    split = f" ({gate.counted})" if gate.counted else ""
    return f"{gate.gate.partition('/')[2]} {'pass by quorum' if gate.quorum else gate.status}{nodes}{split}"


def _trouble(stage: model.StageReport, headline: str) -> list[str]:
    """Return lines about a stage that did not pass, and its rollback. They leave out the reason if the headline has it."""
    kind = f" ({stage.failure_class})" if stage.failure_class else ""
    why = [] if headline.startswith(f"{stage.id}: {stage.reason}") else [f"{stage.id}{kind}: {stage.reason}"]
    return [*why, *([f"rollback of {stage.id}: {stage.rollback}"] if stage.rollback else [])]
