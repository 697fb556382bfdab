"""Rounds of a localisation from the records of stage validation, for the picture of a report."""

from collections.abc import Iterable

from steps.contract.runs.evidence import Evidence, read_observation
from steps.report.pictures import RoundSummary
from steps.stages.validation.contract import LocaliseObservation

STAGE, FIELDS = "validation", {"diagnosis", "rounds"}
"""Stage whose records have localisations, and the fields of an observation of one that ran."""


def localisation_rounds(records: Iterable[Evidence]) -> tuple[RoundSummary, ...]:
    """Return the rounds of the latest localisation; none if no test between nodes ran."""
    rounds: tuple[RoundSummary, ...] = ()
    for record in records:
        if record.stage == STAGE and isinstance(record.observation, dict) and record.observation.keys() >= FIELDS:
            seen = read_observation(record.observation, LocaliseObservation)
            if seen is not None:
                rounds = tuple(
                    RoundSummary(
                        number=part.number, purpose=part.purpose, passed=part.passed, failed=part.failed, unknown=part.unknown
                    )
                    for part in seen.rounds
                )
    return rounds
