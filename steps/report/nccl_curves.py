"""Curves of bandwidth against message size from the records of stage validation, for the pictures of a report."""

from collections.abc import Iterable, Iterator

from steps.contract.evidence import Evidence, read_observation
from steps.contract.nccl import NcclRun
from steps.report.pictures import Curve
from steps.stages.validation.contract import FunctionalObservation

STAGE, FIELDS = "validation", {"job", "log"}
"""Stage whose records have NCCL tables, and the fields of an observation of its test over all nodes."""


def nccl_curves(records: Iterable[Evidence]) -> tuple[Curve, ...]:
    """Return a curve for each run of the latest NCCL test over all nodes; the lower side of each size counts."""
    curves: tuple[Curve, ...] = ()
    for record in records:
        if record.stage == STAGE and isinstance(record.observation, dict) and record.observation.keys() >= FIELDS:
            seen = read_observation(record.observation, FunctionalObservation)
            if seen is not None and seen.log is not None:
                curves = tuple(_curves(seen.log.runs)) or curves
    return curves


def _curves(runs: Iterable[NcclRun]) -> Iterator[Curve]:
    for number, run in enumerate(runs, start=1):
        points = tuple((float(row.size), row.least) for row in run.rows if row.least is not None)
        if points:
            yield Curve(name=run.collective or f"run {number}", points=points)
