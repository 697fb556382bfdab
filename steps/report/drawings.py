"""Figures and charts of the HTML report as data: tiles, a time chart, nodes by rack, heat maps and strip plots."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from steps.contract.host_ranges import fold
from steps.contract.measurements import Measurement
from steps.contract.plain_text import count
from steps.contract.verdict import Status
from steps.report import model

FEW = 40
"""Most nodes that are all shown; of more, racks without a finding are folded."""
RACK = 32
"""Nodes that are shown together where the fleet names no racks."""
LANES = 7
"""Rows among which the dots of a strip plot are spread, so that equal values are not on top of each other."""


def span(seconds: float) -> str:
    """Return a duration in words: `0.8 s`, `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


# ---- tiles -------------------------------------------------------------------------------------------------------------------


class Tile(Struct, frozen=True, kw_only=True):
    """A figure at the head of a report. `tone` is the CSS class of its colour: pass, fail, inconclusive, or empty."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


def tiles(report: model.Report) -> list[Tile]:
    """Return what an acceptance needs first: nodes, stages, each measured quantity against its floor, and what did not run."""
    rows = [_nodes(report)] if report.nodes else []
    passed = sum(stage.status == Status.PASS for stage in report.stages)
    everything = passed == len(report.stages)
    rows.append(Tile(label="stages passed", value=f"{passed} of {len(report.stages)}", tone="pass" if everything else ""))
    rows += measured_tiles(report)
    if report.untested:
        names = ", ".join(part.test for part in report.untested)
        rows.append(Tile(label="tests that did not run", value=str(len(report.untested)), note=names, tone="inconclusive"))
    missing = [gate.gate for stage in report.stages for gate in stage.gates if gate.status == model.NOT_RUN]
    if missing:
        first = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        rows.append(Tile(label="gates not run", value=str(len(missing)), note=first, tone="inconclusive"))
    return rows


def _nodes(report: model.Report) -> Tile:
    accepted, aside = len(report.accepted), report.aside
    note = f"set aside: {fold(aside)}" if aside else ""
    if report.status != Status.PASS:
        note = f"{report.status}; {note}" if note else "none is accepted unless the run passes"
    tone = "pass" if accepted == len(report.nodes) else "inconclusive" if accepted else "fail"
    return Tile(label="nodes accepted", value=f"{accepted} of {len(report.nodes)}", note=note, tone=tone)


def measured_tiles(report: model.Report) -> list[Tile]:
    """Return a figure for each measured quantity: the least value that counts, and the floor."""
    aside = frozenset(report.aside)
    return [_measured(row, aside) for row in report.measured]


def _measured(row: Measurement, aside: Collection[str]) -> Tile:
    """Return the least value that was measured on nodes that were not set aside, with the node that had it, and the floor."""
    floor = f"floor {row.floor:g} {row.unit}" if row.floor is not None else "no floor given"
    least = {node: value for node, value in row.least.items() if node not in aside}
    worst = min(least, key=lambda node: least[node], default="")
    value = row.together if row.together is not None else least.get(worst)
    if value is None:
        return Tile(label=row.quantity, value="not measured", note=floor, tone="inconclusive")
    note = f"slowest node {worst}, {floor}" if row.together is None else floor
    tone = "" if row.floor is None else "fail" if row.is_low(value) else "pass"
    return Tile(label=row.quantity, value=f"{value:g} {row.unit}", note=note, tone=tone)


# ---- time --------------------------------------------------------------------------------------------------------------------


class Bar(Struct, frozen=True, kw_only=True):
    """A bar of the time chart; `left` and `width` are shares of the run's time in per cent, `tone` is its CSS class."""

    left: float
    width: float
    tone: str
    title: str


class TimeRow(Struct, frozen=True, kw_only=True):
    """A row of the time chart: a stage with its tasks and its wait for an approval, or one task of it with its attempts."""

    name: str
    took: str
    bars: tuple[Bar, ...]
    tasks: tuple["TimeRow", ...] = ()


def time_rows(report: model.Report) -> list[TimeRow]:
    """Return the time chart: a row for each stage that began or waits for an approval, with a row for each of its tasks."""
    ends = [approval.time or approval.asked for approval in report.approvals]
    begin, end = report.started, max([report.finished, *ends])
    whole = max(end - begin, 0.001)

    def bar(started: float, finished: float, tone: str, title: str) -> Bar:
        share, started = 100 / whole, max(started, begin)
        width = max((finished - started) * share, 0.3)
        return Bar(left=round((started - begin) * share, 2), width=round(width, 2), tone=tone, title=title)

    rows: list[TimeRow] = []
    for stage in report.with_opening:
        waits = [approval for approval in report.approvals if approval.stage == stage.id and approval.asked]
        lengths = [(wait.time or end) - wait.asked for wait in waits]
        titles = [f"waited {span(length)} for an approval" for length in lengths]
        bars = [bar(wait.asked, wait.time or end, "wait", title) for wait, title in zip(waits, titles, strict=True)]
        took = f"waited {span(sum(lengths))}" if waits else ""
        attempts = [attempt for attempt in report.attempts if attempt.stage == stage.id]
        if stage.started:
            time = span(stage.finished - stage.started)
            bars.append(bar(stage.started, stage.finished, stage.status, f"{stage.id}: {stage.status}, {time}"))
            took = f"{time}, {took}" if took else time
        if bars:
            rows.append(TimeRow(name=stage.id, took=took, bars=tuple(bars), tasks=tuple(_task_rows(attempts, bar))))
    return rows


def _task_rows(attempts: Sequence[model.Attempt], bar: Callable[[float, float, str, str], Bar]) -> Iterator[TimeRow]:
    """Yield a row for each task of a stage, with a bar for each attempt of each shard."""
    for task in dict.fromkeys(attempt.task for attempt in attempts):
        own = [attempt for attempt in attempts if attempt.task == task]
        titles = [f"{row.key}: {row.status}, {span(row.finished - row.started)}" for row in own]
        bars = [bar(row.started, row.finished, row.status, title) for row, title in zip(own, titles, strict=True)]
        took = span(max(row.finished for row in own) - min(row.started for row in own))
        more = f", {count(len(own), 'record')}" if len(own) > 1 else ""
        yield TimeRow(name=task, took=took + more, bars=tuple(bars))


# ---- nodes -------------------------------------------------------------------------------------------------------------------


class Rack(Struct, frozen=True, kw_only=True):
    """Nodes that are shown together: those of a rack, or neighbours in the fleet. `open`: they are shown without a click.

    `findings` counts the nodes in it that need attention.
    """

    name: str
    nodes: tuple[str, ...]
    findings: int
    open: bool


def racks(nodes: Sequence[model.HostReport], odd: Collection[str]) -> list[Rack]:
    """Return the nodes by rack, in fleet order; a small fleet is one group. Racks without a node in `odd` are folded."""
    flagged = set(odd)
    if len(nodes) <= FEW:
        whole = tuple(node.name for node in nodes)
        return [Rack(name=fold(whole), nodes=whole, findings=len(flagged.intersection(whole)), open=True)]
    by_rack: dict[str, list[str]] = {}
    for node in nodes:
        by_rack.setdefault(node.rack, []).append(node.name)
    shown: list[Rack] = []
    for rack, names in by_rack.items():
        size = len(names) if rack else RACK
        for part in (names[first : first + size] for first in range(0, len(names), size)):
            findings, title = len(flagged.intersection(part)), fold(part)
            shown.append(
                Rack(
                    name=f"{rack}: {title}" if rack else title,
                    nodes=tuple(part),
                    findings=findings,
                    open=bool(findings),
                )
            )
    return shown


def odd_nodes(report: model.Report) -> list[str]:
    """Return the nodes that were set aside or did not pass a gate."""
    good = {Status.PASS.value, Status.SKIPPED.value}
    return [node.name for node in report.nodes if node.aside or not set(node.gates.values()) <= good]


# ---- measurements ------------------------------------------------------------------------------------------------------------


class Dot(Struct, frozen=True, kw_only=True):
    """A node in a strip plot: its place in per cent of width and height, and its CSS class."""

    x: float
    y: float
    tone: str
    title: str


class Strip(Struct, frozen=True, kw_only=True):
    """A strip plot: a dot for each node, the floor's place in per cent (None without a floor), and the ends of the axis."""

    dots: tuple[Dot, ...]
    floor: float | None
    low: str
    high: str


def strip(row: Measurement) -> Strip | None:
    """Return the strip plot of a quantity with a value for each node; None if fewer than two nodes have one."""
    least = row.least
    if len(least) < 2:
        return None
    ends = [*least.values(), *([row.floor] if row.floor is not None else [])]
    low, high = min(ends), max(ends)
    margin = (high - low) * 0.06 or max(abs(high) * 0.02, 1e-9)
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    dots = (
        Dot(
            x=place(value),
            y=round(100 * (number % LANES + 1) / (LANES + 1), 1),
            tone="fail" if row.is_low(value) else "pass" if row.floor is not None else "plain",
            title=f"{node}: {value:g} {row.unit}",
        )
        for number, (node, value) in enumerate(least.items())
    )
    floor = None if row.floor is None else place(row.floor)
    return Strip(dots=tuple(dots), floor=floor, low=f"{low:.4g}", high=f"{high:.4g} {row.unit}")


class Cell(Struct, frozen=True, kw_only=True):
    """A cell of a heat map: its CSS class, its opacity from 0 to 1, and the words for it."""

    tone: str
    opacity: float
    title: str


class HeatMap(Struct, frozen=True, kw_only=True):
    """Values by node and column, such as the bandwidth of each rail: racks of nodes, and each node's cells."""

    racks: tuple[Rack, ...]
    cells: dict[str, tuple[Cell, ...]]


def heat_map(row: Measurement, nodes: Sequence[model.HostReport]) -> HeatMap | None:
    """Return the heat map of a quantity with columns; None if it has none.

    Cells below the floor are red. The others are the paler the nearer they are to the floor, or to the least value without one.
    """
    every = [value for values in row.values.values() for value in values if value is not None]
    if not row.columns or not every:
        return None
    best, least = max(every), row.floor if row.floor is not None else min(every)

    def cell(node: str, column: str, value: float | None) -> Cell:
        if value is None:
            return Cell(tone="", opacity=1.0, title=f"{node} {column}: not measured")
        title = f"{node} {column}: {value:g} {row.unit}"
        if row.is_low(value):
            return Cell(tone="fail", opacity=1.0, title=title)
        opacity = 0.4 + 0.6 * (value - least) / (best - least) if best > least else 1.0
        return Cell(tone="pass", opacity=round(opacity, 2), title=title)

    cells = {
        node: tuple(cell(node, column, value) for column, value in zip(row.columns, values, strict=False))
        for node, values in row.values.items()
    }
    odd = [node for node, shown in cells.items() if any(part.tone != "pass" for part in shown)]
    measured = [node for node in nodes if node.name in cells]
    return HeatMap(racks=tuple(racks(measured, odd)), cells=cells)
