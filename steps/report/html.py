"""Renders a report as one self-contained HTML file, printable, without scripts or references to anything outside."""

import functools
from importlib import resources

import jinja2
import markupsafe

from steps.contract.host_ranges import fold
from steps.contract.measurements import Measurement
from steps.report import drawings, model, pictures, product_parts
from steps.report.drawings import span
from steps.report.timeline import stamp

_FOLDER = resources.files("steps.report")
_TONES = ("pass", "fail", "inconclusive")


def html(report: model.Report) -> str:
    """Return the report as an HTML page. Values from outside are escaped."""
    odd = drawings.odd_nodes(report)
    return page().render(
        r=report,
        style=markupsafe.Markup(_FOLDER.joinpath("report.css").read_text()),
        product=_product(report),
        gates=_node_gates(report),
        by_name={node.name: node for node in report.nodes},
        racks=drawings.racks(report.nodes, odd),
        tiles=drawings.tiles(report),
        time_rows=drawings.time_rows(report),
        strip=drawings.strip,
        bandwidth=_bandwidth(report),
        scaling=_scaling(report),
        localisation=_localisation(report),
        spread=_spread,
        rail_picture=lambda row: _rails(row, report),
        heat_map=drawings.heat_map,
        fold=fold,
        stamp=stamp,
        cell=_cell,
        span=span,
        tone=lambda status: status if status in _TONES else "skipped",
    )


@functools.cache
def page() -> jinja2.Template:
    """Return the compiled template of a report's page. Compiling takes 0.1 s, most of the time of a small report."""
    return _compiled(_FOLDER.joinpath("report.html.j2").read_text())


def _compiled(text: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text)


def _product(report: model.Report) -> markupsafe.Markup:
    """Return the HTML of the part that the run's product writes itself; the product's own template has escaped the values."""
    if report.product is None:
        return markupsafe.Markup("")
    parts = product_parts.reports_of(dict.fromkeys(attempt.stage for attempt in report.attempts))
    values = {"span": span, "mb": lambda size: f"{size / 1e6:.1f} MB"}
    shown = ((part, details) for part in parts if (details := getattr(report, part.SECTION)) is not None)
    pages = (_compiled(part.template()).render(values, details=details) for part, details in shown)
    return markupsafe.Markup("".join(pages))


def _bandwidth(report: model.Report) -> markupsafe.Markup:
    """Return the picture of bandwidth against message size over all nodes, with the floor; empty without a table of sizes."""
    if not report.curves:
        return markupsafe.Markup("")
    floor = next((row.floor for row in report.measured if row.together is not None and row.floor is not None), None)
    # pictures escape the texts that they are given
    return markupsafe.Markup(pictures.bandwidth_by_size("Bandwidth against message size", report.curves, floor=floor))


def _scaling(report: model.Report) -> markupsafe.Markup:
    """Return the picture of bandwidth against the number of nodes with its fit; empty unless several numbers were measured."""
    if not report.scaling:
        return markupsafe.Markup("")
    return markupsafe.Markup(pictures.scaling("all_reduce against the number of nodes", report.scaling))


def _localisation(report: model.Report) -> markupsafe.Markup:
    """Return the picture of the rounds in which a bad part was searched for; empty if none ran."""
    if not report.localisation:
        return markupsafe.Markup("")
    return markupsafe.Markup(pictures.localisation_history("Rounds of the localisation", report.localisation, ""))


def _spread(row: Measurement) -> markupsafe.Markup:
    """Return the distribution of a quantity over a fleet of more than a few nodes, with its outliers named."""
    if len(row.least) <= drawings.FEW:
        return markupsafe.Markup("")
    title = f"Distribution of {row.quantity}"
    return markupsafe.Markup(pictures.distribution(title, row.least, floor=row.floor, unit=row.unit))


def _rails(row: Measurement, report: model.Report) -> markupsafe.Markup:
    """Return the map of nodes by rails of a quantity with columns, for a fleet of more than a few nodes."""
    if not row.columns or len(row.values) <= drawings.FEW:
        return markupsafe.Markup("")
    racks = {node.name: node.rack or "fleet" for node in report.nodes}
    title = f"{row.quantity} by node and rail"
    return markupsafe.Markup(pictures.rail_map(title, row.values, racks, floor=row.floor, unit=row.unit))


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
