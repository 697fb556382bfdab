"""Judgement of gate slurm_acceptance/bandwidth: which sentence the acceptance ends with."""

import statistics
from collections.abc import Iterator
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


def judged(gate: str, seen: BandwidthObservation, want: BandwidthExpectation) -> Verdict:
    """Return the verdict with the median of each node; its reason is the sentence with which the acceptance ends."""
    medians = node_medians(seen)
    verdict = _judged(gate, seen, want, medians)
    values: dict[str, tuple[float | None, ...]] = {node: (medians.get(node),) for node in want.nodes}
    measured = Measurement(quantity=QUANTITY, unit="GB/s", floor=want.floor, values=values)
    notes = (
        f"{seen.program or 'no program'}, buffers in {seen.memory or 'unknown'} memory, {count(seen.rounds, 'round')},"
        f" {count(len(seen.figures), 'test')}",
        f"error bounds: {seen.false_alarm:.2g} that a named part is innocent, {seen.missed:.2g} that a bad one is missed",
    )
    return replace(verdict, measured=(measured,), notes=notes)


def node_medians(seen: BandwidthObservation) -> dict[str, float]:
    """Return the median of all figures that a node took part in, by node: k of n, never the best of n."""
    figures: dict[str, list[float]] = {}
    for row in seen.figures:
        if row.figure is not None:
            for node in row.nodes:
                figures.setdefault(node, []).append(row.figure)
    return {node: statistics.median(values) for node, values in figures.items()}


def _judged(gate: str, seen: BandwidthObservation, want: BandwidthExpectation, medians: dict[str, float]) -> Verdict:
    if want.floor <= 0 or len(want.nodes) < 2:
        return _open(gate, "no floor above 0, or fewer than two nodes", "a floor and two nodes", "give --floor and --nodes", ())
    if seen.parts:
        return _refused(gate, seen, want)
    rows = [_node(name, seen, want, medians) for name in want.nodes]
    bad = [row for row in rows if row.status is not Status.PASS]
    if not seen.finished:
        first = by_cause(seen.errors)[:1]
        cause = first[0].cause if first else seen.reason or next((row.problem for row in seen.figures if row.problem), "")
        text = f"the localisation did not finish: {cause or 'no reason is known'}"
        return _open(gate, text, "a verdict on every node", "see the log of this task", rows)
    if bad:
        # partners of a node that fails now and then fail with it: the node that fails most of its tests comes first
        bad.sort(key=lambda row: (row.status is not Status.FAIL, -_share_below(row.node, seen, want.floor)))
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


def _node(name: str, seen: BandwidthObservation, want: BandwidthExpectation, medians: dict[str, float]) -> NodeVerdict:
    figure = medians.get(name)
    expected, step = f"a floor of {want.floor:g} GB/s", "measure it by hand with the same program, against two good nodes"
    if figure is not None and figure < want.floor:
        text = f"its median is {figure:.3g} GB/s"
        return NodeVerdict(node=name, status=Status.FAIL, seen=text, expected=expected, next_step=step, failure_class=_PERFORMANCE)
    fails, tests = _below(name, seen, want.floor)
    unsteady = fails >= _FAILURES and fails * 4 >= tests
    if figure is None or unsteady or name not in seen.cleared:
        text = f"it fails {fails} of {tests} of its tests" if fails else "it is not cleared"
        text = "nothing was measured" if figure is None else text
        return NodeVerdict(
            node=name, status=Status.INCONCLUSIVE, seen=text, expected=expected, next_step=step, failure_class=_PERFORMANCE
        )
    return NodeVerdict(node=name, status=Status.PASS, seen=f"{figure:.3g} GB/s")


def _below(name: str, seen: BandwidthObservation, floor: float) -> tuple[int, int]:
    """Return how many figures of a node are below the floor, and how many it has."""
    figures = [row.figure for row in seen.figures if name in row.nodes and row.figure is not None]
    return sum(figure < floor for figure in figures), len(figures)


def _share_below(name: str, seen: BandwidthObservation, floor: float) -> float:
    fails, tests = _below(name, seen, floor)
    return fails / max(tests, 1)


def _refused(gate: str, seen: BandwidthObservation, want: BandwidthExpectation) -> Verdict:
    """Return the fail that names the bad parts with their measurements."""
    texts = [f"{part_text(part)}, by {evidence_text(part, seen)}{_share(part, seen, want)}" for part in seen.parts[:_MOST_NAMED]]
    more = len(seen.parts) - len(texts)
    text = "; ".join(texts) + (f"; and {count(more, 'more part')}" if more else "")
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
        else _cleared(name, seen)
        for name in want.nodes
    ]
    step = "see the links of the part, and accept it again with --nodes after the repair"
    return failed(
        gate, _PERFORMANCE, seen=_not(text), expected=f"a floor of {want.floor:g} GB/s", next_step=step, final=True, nodes=rows
    )


def _share(part: BadPart, seen: BandwidthObservation, want: BandwidthExpectation) -> str:
    """Return how many of its tests a node fails if it passes others; empty for other parts."""
    fails, tests = _below(part.nodes[0], seen, want.floor) if part.kind == "node" and part.nodes else (0, 0)
    return f" (it fails {fails} of {tests} of its tests)" if 0 < fails < tests else ""


def _cleared(name: str, seen: BandwidthObservation) -> NodeVerdict:
    """Return the verdict on a node beside a bad part: a pass if the localisation has cleared it."""
    if name in seen.cleared:
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
