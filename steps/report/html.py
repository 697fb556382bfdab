"""Renders a report as one self-contained HTML file, printable, without scripts or references to anything outside."""

from importlib import resources

import jinja2
import markupsafe

from steps.report import model, product_parts
from steps.report.timeline import stamp

_TONES = ("pass", "fail", "inconclusive")


def html(report: model.Report) -> str:
    """Return the report as an HTML page. Values from outside are escaped."""
    whole = max(report.finished - report.started, 0.001)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = resources.files("steps.report").joinpath("report.html.j2").read_text()
    return environment.from_string(template).render(
        r=report,
        product=_product(environment, report),
        gates=_node_gates(report),
        stamp=stamp,
        cell=_cell,
        span=span,
        tone=lambda status: status if status in _TONES else "skipped",
        left=lambda stage: f"{100 * (stage.started - report.started) / whole:.2f}",
        width=lambda stage: f"{100 * (stage.finished - stage.started) / whole:.2f}",
    )


def _product(environment: jinja2.Environment, report: model.Report) -> markupsafe.Markup:
    """Return the HTML of the part that the run's product writes itself; the product's own template has escaped the values."""
    if report.product is None:
        return markupsafe.Markup("")
    parts = product_parts.reports_of(dict.fromkeys(attempt.stage for attempt in report.attempts))
    values = {"details": report.product, "span": span, "mb": lambda size: f"{size / 1e6:.1f} MB"}
    return markupsafe.Markup("".join(environment.from_string(part.template()).render(values) for part in parts))


def span(seconds: float) -> str:
    """Return a duration in words: `0.8 s`, `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _cell(node: model.HostReport, gate: str) -> tuple[str, str]:
    """Return CSS class and words for a node in the column of a gate: its status there, or that an earlier stage quarantined it."""
    if gate in node.gates:
        return node.gates[gate], node.gates[gate]
    return ("away", f"set aside in {node.aside_in}") if node.aside else ("", "not judged")


def _node_gates(report: model.Report) -> list[str]:
    """Return the gates that judge nodes, in running order."""
    judged = {gate for node in report.nodes for gate in node.gates}
    planned = [gate.gate for stage in report.stages for gate in stage.gates if gate.gate in judged]
    return [*planned, *sorted(judged - set(planned))]
