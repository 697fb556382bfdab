"""Pictures of an acceptance as inline SVG, without scripts or references to anything outside: pure functions from data to text.

Colours are the page's custom properties, with a fallback where a picture stands alone, so pictures follow its dark and light form.
Each has a title and a description in words, and is bounded in size for large fleets: equal neighbours are drawn as one shape.
"""

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from msgspec import Struct

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 32, 16, 44
"""Margins of a chart around its axes."""
MOST_NAMED = 12
"""So many outliers get their name in a picture; the description counts all."""
MOST_CURVES = 8
BINS = 40
DEVIATIONS = 4.0
"""Robust standard deviations (1.4826 × MAD) below the median from which a value is an outlier."""
COLOURS = {
    "ink": "var(--ink,#1b2430)",
    "soft": "var(--soft,#5b6776)",
    "line": "var(--line,#dde3ea)",
    "pass": "var(--pass,#1f8a4c)",
    "fail": "var(--fail,#c6303e)",
    "inconclusive": "var(--inconclusive,#b7791f)",
    "plain": "var(--plain,#3a6ea5)",
    "none": "var(--none,#e8ecf0)",
    "paper": "var(--paper,#fff)",
}
DASHES = ("", "6 4", "2 3", "8 3 2 3", "12 4", "1 5", "12 3 2 3", "5 2")
"""Strokes of curves, so that they differ without colours."""


class Curve(Struct, frozen=True, kw_only=True):
    """A measured curve: pairs of size and value. A peer's or an earlier run's curve has `peer` set."""

    name: str
    points: tuple[tuple[float, float], ...]
    peer: bool = False


class RoundSummary(Struct, frozen=True, kw_only=True):
    """One round of a localisation for its picture: what it was for, and how many tests passed, failed and gave no result."""

    number: int
    purpose: str
    passed: int
    failed: int
    unknown: int = 0


# ---- charts ------------------------------------------------------------------------------------------------------------------


def bandwidth_by_size(title: str, curves: Sequence[Curve], *, floor: float | None = None, unit: str = "GB/s") -> str:
    """Return bandwidth against message size in bytes, on a logarithmic axis, with the floor and the curves of peers."""
    shown = [curve for curve in curves if curve.points][:MOST_CURVES]
    sizes = [size for curve in shown for size, _ in curve.points if size > 0]
    if not sizes:
        return _empty(title, "No bandwidth was measured.")
    top = max([value for curve in shown for _, value in curve.points] + ([floor] if floor is not None else []))
    axes = _Axes(math.log2(min(sizes)), math.log2(max(sizes)), top)
    marks = [(exponent, _bytes(2**exponent)) for exponent in _spread(math.log2(min(sizes)), math.log2(max(sizes)))]
    parts, lines = [*axes.frame(marks, "message size", unit)], list[tuple[str, str, str]]()
    every = [sorted((math.log2(size), value) for size, value in curve.points if size > 0) for curve in shown]
    for number, (curve, points) in enumerate(zip(shown, every, strict=True)):
        lines.append((COLOURS["soft" if curve.peer else "plain"], DASHES[number % len(DASHES)], curve.name))
        parts += axes.curve(points, *lines[-1])
    parts += axes.legend(lines, itertools.chain(*every))
    if floor is not None:
        parts += axes.level(floor, f"floor {floor:g} {unit}")
    best = "; ".join(f"{curve.name}: {max(value for _, value in curve.points):g} {unit} at most" for curve in shown)
    return _svg(title, f"{best}. {'No floor.' if floor is None else f'Floor {floor:g} {unit}.'}", parts, HEIGHT)


def scaling(title: str, points: Sequence[tuple[int, float]], *, floor: float | None = None, unit: str = "GB/s") -> str:
    """Return bandwidth against the number of nodes, with a straight fit over log2 of the number and the residual of each point."""
    rows = sorted((nodes, value) for nodes, value in points if nodes > 0)
    if not rows:
        return _empty(title, "No scaling was measured.")
    logs = [(math.log2(nodes), value) for nodes, value in rows]
    axes = _Axes(logs[0][0], logs[-1][0], max([value for _, value in rows] + ([floor] if floor is not None else [])))
    marks = [(math.log2(nodes), str(nodes)) for nodes in dict.fromkeys(nodes for nodes, _ in rows)]
    parts = [*axes.frame(marks[:: max(1, len(marks) // 10)], "nodes", unit)]
    lines = [(COLOURS["plain"], "", "measured")]
    parts += axes.curve(logs, *lines[0])
    words = "Too few sizes for a fit."
    if len(dict.fromkeys(nodes for nodes, _ in rows)) > 1:
        slope, start = statistics.linear_regression([x for x, _ in logs], [y for _, y in logs])
        fitted = [(x, start + slope * x) for x, _ in logs]
        words = f"Fit: {start:.4g} {slope:+.4g} × log2(nodes) {unit}; largest residual {_residual(logs, fitted):.3g} {unit}."
        lines.append((COLOURS["soft"], DASHES[1], "fit"))
        parts += axes.curve([fitted[0], fitted[-1]], *lines[1])
    parts += axes.legend(lines, logs)
    if floor is not None:
        parts += axes.level(floor, f"floor {floor:g} {unit}")
    ends = ", ".join(f"{value:g} {unit} at {nodes} nodes" for nodes, value in (rows[0], rows[-1]))
    return _svg(title, f"{ends}. {words}", parts, HEIGHT)


def distribution(title: str, values: Mapping[str, float], *, floor: float | None = None, unit: str = "GB/s") -> str:
    """Return the distribution of one value for each node, with low outliers of the fleet named."""
    if not values:
        return _empty(title, "Nothing was measured.")
    odd, middle = outliers(values, floor), statistics.median(values.values())
    ends = [*values.values(), *([floor] if floor is not None else [])]
    low, high = min(ends), max(ends)
    pad = (high - low) * 0.03 or max(abs(high) * 0.02, 1e-9)
    low, high = low - pad, high + pad
    counts = [0] * BINS
    for value in values.values():
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1)] += 1
    axes = _Axes(low, high, max(counts))
    marks = [(low + (high - low) * step / 4, f"{low + (high - low) * step / 4:.4g}") for step in range(5)]
    parts = [*axes.frame(marks, unit, "nodes")]
    width = (WIDTH - LEFT - RIGHT) / BINS - 1
    for number, count in enumerate(counts):
        if count:
            left, upper = LEFT + number * (width + 1), axes.y(count)
            parts.append(_rect(left, upper, width, axes.y(0) - upper, COLOURS["plain"], f"{count} nodes"))
    if floor is not None:
        parts += axes.upright(floor, f"floor {floor:g}")
    parts += axes.upright(middle, f"median {middle:.4g}", COLOURS["soft"])
    for row, (node, value) in enumerate(odd[:MOST_NAMED]):
        height = TOP + 14 + row * 15
        parts.append(_circle(axes.x(value), axes.y(0) - 4, COLOURS["fail"], f"{node}: {value:g} {unit}"))
        parts.append(_text(LEFT + 8, height, f"{node}: {value:g}", colour=COLOURS["fail"]))
    names = ", ".join(f"{node} {value:g}" for node, value in odd[:MOST_NAMED])
    words = f"{len(odd)} low outliers: {names}." if odd else "No low outliers."
    return _svg(title, f"{len(values)} nodes, median {middle:.4g} {unit}. {words}", parts, HEIGHT)


def outliers(values: Mapping[str, float], floor: float | None = None) -> list[tuple[str, float]]:
    """Return the nodes below the floor or far below the fleet's median (median/MAD), the lowest first."""
    middle = statistics.median(values.values())
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values.values())
    bound = middle - max(DEVIATIONS * spread, abs(middle) * 0.01)
    low = [(node, value) for node, value in values.items() if value < bound or (floor is not None and value < floor)]
    return sorted(low, key=lambda row: (row[1], row[0]))


# ---- node × rail -------------------------------------------------------------------------------------------------------------

CELL, ROW, GAP = 14, 9, 20
LONGEST_LABEL = 10
COLUMNS = 4
"""Leaves beside each other in the map of rails."""


def rail_map(
    title: str,
    rails: Mapping[str, Sequence[float | None]],
    leaves: Mapping[str, str],
    *,
    floor: float | None = None,
    unit: str = "Gbit/s",
) -> str:
    """Return the map of nodes (rows) by rails (columns), a block for each leaf. Neighbours of one colour in a row are one shape."""
    if not rails:
        return _empty(title, "No rail was measured.")
    width = max(len(row) for row in rails.values())
    by_leaf: dict[str, list[str]] = {}
    for node in rails:
        by_leaf.setdefault(leaves.get(node, "unknown leaf"), []).append(node)
    parts, top, low, missing = list[str](), 0.0, list[str](), 0
    step = max(WIDTH / COLUMNS, width * CELL + 24)
    for band in _batched(by_leaf.items(), COLUMNS):
        for column, (leaf, nodes) in enumerate(band):
            left = column * step
            parts.append(_text(left, top + 12, f"{leaf}, {len(nodes)} nodes", colour=COLOURS["soft"]))
            for place, node in enumerate(nodes):
                height = top + GAP + place * (ROW + 1)
                tones = [_tone(value, floor) for value in rails[node]]
                low += [f"{node} rail {rail} {rails[node][rail]:g}" for rail, tone in enumerate(tones) if tone == "fail"]
                missing += tones.count("none")
                parts += _rail_row(left, height, node, tones, rails[node], unit)
        top += GAP + max(len(nodes) for _, nodes in band) * (ROW + 1) + 10
    named = ", ".join(low[:MOST_NAMED])
    words = f"{len(low)} rails below the floor: {named}." if low else "No rail is below the floor."
    text = f"{len(rails)} nodes on {len(by_leaf)} leaves, {width} rails each. {words} {missing} rails were not measured."
    return _svg(title, text, parts, math.ceil(top), step * min(COLUMNS, len(by_leaf)))


def _batched(rows: Iterable[tuple[str, list[str]]], size: int) -> Iterator[tuple[tuple[str, list[str]], ...]]:
    iterator = iter(rows)
    while batch := tuple(itertools.islice(iterator, size)):
        yield batch


def _tone(value: float | None, floor: float | None) -> str:
    if value is None:
        return "none"
    return "plain" if floor is None else "fail" if value < floor else "pass"


def _rail_row(left: float, top: float, node: str, tones: Sequence[str], values: Sequence[float | None], unit: str) -> Iterator[str]:
    """Yield the shapes of a node: one for each run of rails with one colour, and for each rail below the floor."""
    place = 0
    for tone, run in itertools.groupby(tones):
        length = len(list(run))
        for first, count in ((place + step, 1) for step in range(length)) if tone == "fail" else ((place, length),):
            last = first + count - 1
            measured = [value for value in values[first : last + 1] if value is not None]
            words = f"{min(measured):g} {unit}" if measured else "not measured"
            rail = f"rail {first}" if count == 1 else f"rails {first}-{last}"
            yield _rect(left + first * CELL, top, count * CELL - 1, ROW, COLOURS[tone], f"{node} {rail}: {words}")
        place += length
    if "fail" in tones:
        yield _text(left + len(tones) * CELL + 3, top + ROW - 1, node[:LONGEST_LABEL], colour=COLOURS["fail"])


# ---- localisation ------------------------------------------------------------------------------------------------------------

MOST_ROUNDS = 60


def localisation_history(title: str, rounds: Sequence[RoundSummary], verdict: str) -> str:
    """Return a bar for each round of a localisation: tests that passed, failed and gave no result, with the round's purpose."""
    if not rounds:
        return _empty(title, "No round was run.")
    shown = rounds[-MOST_ROUNDS:]
    scale = (WIDTH - 500) / math.log2(1 + max(row.passed + row.failed + row.unknown for row in shown))
    parts = [_text(0, 14, verdict[:160])]
    for place, row in enumerate(shown):
        top = 26 + place * 18
        parts.append(_text(0, top + 11, f"{row.number}"))
        tests = row.passed + row.failed + row.unknown
        # logarithmic length, because a first round has hundreds of tests and a last one has one
        whole, left = scale * math.log2(1 + tests), 26.0
        for tone, count, word in (("pass", row.passed, "passed"), ("fail", row.failed, "failed"), ("none", row.unknown, "unknown")):
            if count:
                width = max(whole * count / tests, 3.0)
                parts.append(_rect(left, top, width, 13, COLOURS[tone], f"round {row.number}: {count} {word}"))
                left += width
        counts = f"{tests} tests, {row.failed} failed" + (f", {row.unknown} unknown" if row.unknown else "")
        purpose = row.purpose if len(row.purpose) <= 40 else f"{row.purpose[:39]}…"
        parts.append(_text(left + 6, top + 11, f"{counts}: {purpose}", colour=COLOURS["soft"]))
    tests = sum(row.passed + row.failed + row.unknown for row in rounds)
    return _svg(title, f"{len(rounds)} rounds, {tests} tests. {verdict}", parts, 32 + len(shown) * 18)


# ---- shapes ------------------------------------------------------------------------------------------------------------------


class _Axes:
    """Places of values in a chart whose vertical axis begins at 0."""

    def __init__(self, low: float, high: float, top: float) -> None:
        self.low, self.high = (low, high) if high > low else (low - 0.5, high + 0.5)
        self.step = _round_step(top / 4) if top > 0 else 0.25
        self.top = max(top * 1.08, self.step)

    def x(self, value: float) -> float:
        """Return the place of a value from the left."""
        return LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the place of a value from above."""
        return HEIGHT - BOTTOM - max(value, 0.0) / self.top * (HEIGHT - TOP - BOTTOM)

    def frame(self, marks: Iterable[tuple[float, str]], across: str, up: str) -> Iterator[str]:
        """Yield axes with marks and their labels."""
        for value in (self.step * step for step in range(int(self.top / self.step) + 1)):
            yield _line(LEFT, self.y(value), WIDTH - RIGHT, self.y(value), COLOURS["line"])
            yield _text(LEFT - 6, self.y(value) + 4, f"{value:.4g}", anchor="end", colour=COLOURS["soft"])
        for value, label in marks:
            yield _text(self.x(value), HEIGHT - BOTTOM + 16, label, anchor="middle", colour=COLOURS["soft"])
        yield _text(WIDTH - RIGHT, HEIGHT - 8, across, anchor="end", colour=COLOURS["soft"])
        yield _text(4, TOP - 3, up, colour=COLOURS["soft"])

    def curve(self, points: Sequence[tuple[float, float]], colour: str, dash: str, name: str) -> Iterator[str]:
        """Yield a curve; the points of one without dashes tell their values."""
        places = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        yield f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        if not dash:
            yield from (_circle(self.x(x), self.y(y), colour, f"{name}: {y:g}") for x, y in points)

    def legend(self, lines: Sequence[tuple[str, str, str]], points: Iterable[tuple[float, float]]) -> Iterator[str]:
        """Yield the stroke and name of each curve (colour, dash, name), on the right where the curves' points leave most room."""
        heights = [self.y(y) for x, y in points if self.x(x) >= WIDTH - 220]
        upper, lower = max(itertools.pairwise(sorted([TOP, HEIGHT - BOTTOM, *heights])), key=lambda pair: pair[1] - pair[0])
        bottom = min((upper + lower) / 2 + len(lines) * 8, lower - 12)
        for number, (colour, dash, name) in enumerate(lines):
            height = bottom - number * 16
            yield _line(WIDTH - 200, height, WIDTH - 176, height, colour, dash)
            yield _text(WIDTH - 170, height + 4, name[:26], above=True)

    def level(self, value: float, label: str) -> Iterator[str]:
        """Yield a horizontal line with its label."""
        yield _line(LEFT, self.y(value), WIDTH - RIGHT, self.y(value), COLOURS["fail"], "4 3")
        yield _text(LEFT + 6, self.y(value) - 5, label, colour=COLOURS["fail"], above=True)

    def upright(self, value: float, label: str, colour: str = COLOURS["fail"]) -> Iterator[str]:
        """Yield a vertical line with its label on top."""
        yield _line(self.x(value), TOP, self.x(value), HEIGHT - BOTTOM, colour, "4 3")
        anchor = "end" if self.x(value) > WIDTH / 2 else "start"
        yield _text(self.x(value) + (-5 if anchor == "end" else 5), HEIGHT - BOTTOM + 32, label, anchor=anchor, colour=colour)


def _svg(title: str, words: str, parts: Iterable[str], height: float, width: float = WIDTH) -> str:
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" role="img" viewBox="0 0 {width:g} {height:g}"'
        f' style="width:100%;max-width:{width:g}px;font:12px system-ui,sans-serif">'
        f"<title>{escape(title)}</title><desc>{escape(words)}</desc>{body}</svg>"
    )


def _empty(title: str, words: str) -> str:
    return _svg(title, words, [_text(0, 16, words, colour=COLOURS["soft"])], 24)


def _rect(left: float, top: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _circle(x: float, y: float, colour: str, title: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{escape(title)}</title></circle>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = COLOURS["ink"], above: bool = False) -> str:
    """Return a text; one that stands `above` lines has an edge in the colour of the paper, so that they do not cross it."""
    edge = f' stroke="{COLOURS["paper"]}" stroke-width="5" stroke-linejoin="round" paint-order="stroke"' if above else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{edge}>{escape(words)}</text>'


def _residual(points: Sequence[tuple[float, float]], fitted: Sequence[tuple[float, float]]) -> float:
    return max(abs(value - line) for (_, value), (_, line) in zip(points, fitted, strict=True))


def _spread(low: float, high: float) -> list[int]:
    """Return at most eight whole numbers from low to high."""
    numbers = list(range(math.ceil(low), math.floor(high) + 1))
    return numbers[:: max(1, math.ceil(len(numbers) / 8))]


def _round_step(step: float) -> float:
    """Return the least of 1, 2, 2.5 or 5 times a power of ten that is not below a step between marks."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= step * 0.999)


def _bytes(size: float) -> str:
    """Return a size in bytes with its binary unit."""
    power = min(int(math.log2(size) // 10), 4) if size >= 1 else 0
    return f"{size / 1024**power:g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
