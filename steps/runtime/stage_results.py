"""Results of earlier stages of the same run, for tasks that may act only upon what was proven."""

from collections.abc import Iterable

import msgspec

from steps import __version__
from steps.contract import run_records
from steps.contract.attestation import RunIdentity
from steps.contract.run_records import Header
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import Status
from steps.errors import Refused
from steps.runtime.context import Context


def require_pass(context: Context, stage: str, hint: str) -> None:
    """Raise Refused, with a hint, unless the judge of a stage of this run has passed it: the order of an engine is no proof."""
    judged = context.store.records(context.environment.run, stage, "judge")
    if not judged or not all(record.verdict is not None and record.verdict.status is Status.PASS for record in judged):
        raise Refused(f"stage {stage} of this run has not passed", hint=hint)


def passed_record(context: Context, stage: str, task: str, hint: str) -> Evidence:
    """Return the last record of a task of this run. Raises Refused, with a hint, unless its verdict is a pass."""
    records = context.store.records(context.environment.run, stage, task)
    record = records[-1] if records else None
    if record is None or record.verdict is None or not record.verdict.is_pass:
        reason = record.verdict.reason if record is not None and record.verdict is not None else "no verdict"
        raise Refused(f"{stage}.{task}: {reason}", hint=hint)
    return record


def run_identity(context: Context, tested: Iterable[Evidence]) -> RunIdentity:
    """Return this run for statements about what it made: from its first record to the end of its tests, whose records are given.

    Another attempt of the task that publishes gets an equal result.
    """
    run, records = context.environment.run, list(tested)
    opened = context.store.records(run, run_records.STAGE, run_records.OPEN)
    header = context.store.read(run_records.header_key(run))
    return RunIdentity(
        run=run,
        engine=context.environment.engine,
        version=__version__,
        started=min((record.started for record in (*opened, *records)), default=0.0),
        finished=max((record.finished for record in records), default=0.0),
        revision=msgspec.json.decode(header, type=Header).revision if header else "",
    )
