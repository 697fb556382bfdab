"""Curves of bandwidth against message size and number of nodes, from the records of stage validation, for a report's pictures."""

from collections.abc import Iterable, Iterator

from steps.contract.node_tests.nccl import NcclRun
from steps.contract.runs.evidence import Evidence, read_observation
from steps.report.pictures import Curve
from steps.stages.validation import gate_collectives
from steps.stages.validation.contract import FunctionalObservation

STAGE, FIELDS = "validation", {"job", "log"}
"""Stage whose records have NCCL tables, and the fields of an observation of its test over all nodes."""


def nccl_curves(records: Iterable[Evidence]) -> tuple[Curve, ...]:
    """Return a curve for each run of all_reduce in the latest test over all nodes, and one of each other collective's slowest run.

    The lower side of each size counts.
    """
    curves: tuple[Curve, ...] = ()
    for seen in _observations(records):
        curves = (*_curves(seen.log.runs if seen.log else ()), *_of_programs(seen)) or curves
    return curves


def scaling_points(records: Iterable[Evidence]) -> tuple[tuple[int, float], ...]:
    """Return the latest scaling curve: number of nodes and bus bandwidth of all_reduce in GB/s; empty for a single point."""
    points: tuple[tuple[int, float], ...] = ()
    for seen in _observations(records):
        measured = gate_collectives.curve(seen, len({pod.node for pod in seen.workers if pod.node}))
        points = tuple(measured.items()) if len(measured) > 1 else points
    return points


def _observations(records: Iterable[Evidence]) -> Iterator[FunctionalObservation]:
    for record in records:
        if record.stage == STAGE and isinstance(record.observation, dict) and record.observation.keys() >= FIELDS:
            seen = read_observation(record.observation, FunctionalObservation)
            if seen is not None and seen.log is not None:
                yield seen


def _curves(runs: Iterable[NcclRun]) -> Iterator[Curve]:
    measured = [(number, run, points) for number, run in enumerate(runs, start=1) if (points := _points(run))]
    for number, run, points in measured:
        name = run.collective or "all_reduce"
        yield Curve(name=f"{name}, run {number}" if len(measured) > 1 else name, points=points)


def _of_programs(seen: FunctionalObservation) -> Iterator[Curve]:
    for program in seen.programs:
        if program.log is not None and program.name != gate_collectives.POINT:
            measured = [points for run in program.log.runs if (points := _points(run))]
            if measured:
                yield Curve(name=program.name, points=min(measured, key=lambda points: points[-1][1]))


def _points(run: NcclRun) -> tuple[tuple[float, float], ...]:
    return tuple((float(row.size), row.least) for row in run.rows if row.least is not None)
