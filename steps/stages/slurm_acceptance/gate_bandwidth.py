"""Judgement of gate slurm_acceptance/bandwidth: which sentence the acceptance ends with."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from steps.contract.host_ranges import fold
from steps.contract.measurements import Measurement
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, by_cause, failed, inconclusive, passed
from steps.stages.slurm_acceptance.contract import BadPart, BandwidthExpectation, BandwidthObservation, PairFigure

QUANTITY: Final = "bandwidth between pairs of nodes"
_MOST_NAMED: Final = 4
_FAILURES: Final = 2
"""Figures below the floor from which on a node is not cleared if they are a quarter of its figures: a median hides them."""
_PERFORMANCE = FailureClass.PERFORMANCE
_Figures = Mapping[str, Sequence[float]]
"""Figures in GB/s by the node that took part in their tests."""


def judged(gate: str, seen: BandwidthObservation, want: BandwidthExpectation) -> Verdict:
    """Return the verdict with the median of each node; its reason is the sentence with which the acceptance ends."""
    figures = _figures_by_node(seen)
    medians = {node: statistics.median(values) for node, values in figures.items()}
    verdict = _judged(gate, seen, want, figures, medians)
    values: dict[str, tuple[float | None, ...]] = {node: (medians.get(node),) for node in want.nodes}
    measured = Measurement(quantity=QUANTITY, unit="GB/s", floor=want.floor, values=values)
    notes = (
        f"{seen.program or 'no program'}, buffers in {seen.memory or 'unknown'} memory, {count(seen.rounds, 'round')},"
        f" {count(len(seen.figures), 'test')}",
        f"error bounds: {seen.false_alarm:.2g} that a named part is innocent, {seen.missed:.2g} that a bad one is missed",
    )
    return replace(verdict, measured=(measured,), notes=notes)


def _figures_by_node(seen: BandwidthObservation) -> _Figures:
    """Return all figures that a node took part in, by node: its median is k of n, never the best of n."""
    figures: dict[str, list[float]] = {}
    for row in seen.figures:
        if row.figure is not None:
            for node in row.nodes:
                figures.setdefault(node, []).append(row.figure)
    return figures


def _judged(
    gate: str, seen: BandwidthObservation, want: BandwidthExpectation, figures: _Figures, medians: Mapping[str, float]
) -> Verdict:
    if want.floor <= 0 or len(want.nodes) < 2:
        return _open(gate, "no floor above 0, or fewer than two nodes", "a floor and two nodes", "give --floor and --nodes", ())
    if seen.parts:
        return _refused(gate, seen, want, figures)
    cleared = frozenset(seen.cleared)
    rows = [_node(name, want.floor, figures.get(name, ()), medians.get(name), name in cleared) for name in want.nodes]
    bad = [row for row in rows if row.status is not Status.PASS]
    if not seen.finished:
        first = by_cause(seen.errors)[:1]
        cause = first[0].cause if first else seen.reason or next((row.problem for row in seen.figures if row.problem), "")
        text = f"the localisation did not finish: {cause or 'no reason is known'}"
        return _open(gate, text, "a verdict on every node", "see the log of this task", rows)
    if bad:
        # partners of a node that fails now and then fail with it: the node that fails most of its tests comes first
        bad.sort(key=lambda row: (row.status is not Status.FAIL, -_share_below(figures.get(row.node, ()), want.floor)))
        first_bad = bad[0]
        text, step = f"{first_bad.node}: {first_bad.seen}", first_bad.next_step
        if first_bad.status is Status.FAIL:
            return failed(gate, _PERFORMANCE, seen=_not(text), expected=first_bad.expected, next_step=step, nodes=rows)
        return _open(gate, text, first_bad.expected, step, rows)
    if len(seen.figures) < max(seen.tests, 1) or any(not _is_whole(row) for row in seen.figures):
        return _open(gate, "a test has neither figure nor problem", "one row of every test", "see the log of this task", rows)
    if seen.missed > want.most_missed:
        text = f"a bad part is missed with a probability of up to {seen.missed:.2g}"
        return _open(gate, text, f"at most {want.most_missed:g}", "accept again with a higher --level", rows)
    if not seen.program or not seen.rounds or not seen.tests:
        return _open(gate, "nothing says what measured", "program and rounds", "see the log of this task", rows)
    least = min(medians[name] for name in want.nodes)
    return passed(gate, f"accepted: {count(len(rows), 'node')}, {least:.3g} GB/s against a floor of {want.floor:g}", rows)


def _is_whole(row: PairFigure) -> bool:
    return bool(row.test) and len(row.nodes) > 1 and (row.figure is not None or bool(row.problem))


def _node(name: str, floor: float, figures: Sequence[float], median: float | None, is_cleared: bool) -> NodeVerdict:
    expected, step = f"a floor of {floor:g} GB/s", "measure it by hand with the same program, against two good nodes"
    if median is not None and median < floor:
        text = f"its median is {median:.3g} GB/s"
        return NodeVerdict(node=name, status=Status.FAIL, seen=text, expected=expected, next_step=step, failure_class=_PERFORMANCE)
    fails, tests = _below(figures, floor), len(figures)
    unsteady = fails >= _FAILURES and fails * 4 >= tests
    if median is None or unsteady or not is_cleared:
        text = f"it fails {fails} of {tests} of its tests" if fails else "it is not cleared"
        text = "nothing was measured" if median is None else text
        return NodeVerdict(
            node=name, status=Status.INCONCLUSIVE, seen=text, expected=expected, next_step=step, failure_class=_PERFORMANCE
        )
    return NodeVerdict(node=name, status=Status.PASS, seen=f"{median:.3g} GB/s")


def _below(figures: Iterable[float], floor: float) -> int:
    return sum(figure < floor for figure in figures)


def _share_below(figures: Sequence[float], floor: float) -> float:
    return _below(figures, floor) / max(len(figures), 1)


def _refused(gate: str, seen: BandwidthObservation, want: BandwidthExpectation, figures: _Figures) -> Verdict:
    """Return the fail that names the bad parts with their measurements."""
    texts = [
        f"{part_text(part)}, by {evidence_text(part, seen)}{_share(part, want.floor, figures)}" for part in seen.parts[:_MOST_NAMED]
    ]
    more = len(seen.parts) - len(texts)
    text = "; ".join(texts) + (f"; and {count(more, 'more part')}" if more else "")
    cleared = frozenset(seen.cleared)
    named = {node: part for part in seen.parts if part.kind in ("node", "rail", "pair") for node in part.nodes}
    rows = [
        NodeVerdict(
            node=name,
            status=Status.FAIL,
            seen=part_text(named[name]),
            expected=f"a floor of {want.floor:g} GB/s",
            next_step="see its links, and accept it again with --nodes after the repair",
            failure_class=_PERFORMANCE,
        )
        if name in named
        else _cleared(name, name in cleared)
        for name in want.nodes
    ]
    step = "see the links of the part, and accept it again with --nodes after the repair"
    return failed(
        gate, _PERFORMANCE, seen=_not(text), expected=f"a floor of {want.floor:g} GB/s", next_step=step, final=True, nodes=rows
    )


def _share(part: BadPart, floor: float, figures: _Figures) -> str:
    """Return how many of its tests a node fails if it passes others; empty for other parts."""
    own = figures.get(part.nodes[0], ()) if part.kind == "node" and part.nodes else ()
    fails = _below(own, floor)
    return f" (it fails {fails} of {len(own)} of its tests)" if 0 < fails < len(own) else ""


def _cleared(name: str, is_cleared: bool) -> NodeVerdict:
    """Return the verdict on a node beside a bad part: a pass if the localisation has cleared it."""
    if is_cleared:
        return NodeVerdict(node=name, status=Status.PASS, seen="cleared")
    text = "not decided beside the bad part"
    return NodeVerdict(node=name, status=Status.INCONCLUSIVE, seen=text, failure_class=_PERFORMANCE)


def part_text(part: BadPart) -> str:
    """Return a bad part in words: `node gpu003`, `path between leaf1 and leaf2`."""
    match part.kind:
        case "rail":
            return f"rail {part.rail} of node {fold(part.nodes)}"
        case "pair":
            return f"pair {' and '.join(part.nodes)}"
        case "path":
            return f"path between {' and '.join(part.leaves)}"
        case "scale":
            return f"only groups of at least {part.at_least_nodes} nodes"
    return f"node {fold(part.nodes)}"


def evidence_text(part: BadPart, seen: BandwidthObservation) -> str:
    """Return the measurements that show a bad part, the slowest first."""
    rows = [row for row in seen.figures if row.test in part.evidence]
    rows = rows or [row for row in seen.figures if set(part.nodes) & set(row.nodes)]
    return ", ".join(_figures(rows)) or "tests without a figure"


def _figures(rows: list[PairFigure]) -> Iterator[str]:
    slowest = sorted(rows, key=lambda row: (row.figure is not None, row.figure or 0.0, row.test))
    for row in slowest[:_MOST_NAMED]:
        yield f"{fold(row.nodes)} {'not measured' if row.figure is None else f'{row.figure:.3g} GB/s'}"


def _not(text: str) -> str:
    return f"not accepted: {text}"


def _open(gate: str, text: str, expected: str, step: str, rows: list[NodeVerdict] | tuple[()]) -> Verdict:
    return inconclusive(
        gate, seen=_not(text), expected=expected, next_step=step, failure_class=FailureClass.RUNTIME, nodes=tuple(rows)
    )
