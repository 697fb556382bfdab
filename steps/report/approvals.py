"""Approvals of a run, from the records of `confirm`: when each began to wait, who answered when, and whether the
answer was valid.
"""

from collections.abc import Iterable, Iterator, Sequence

from steps.contract import approval
from steps.contract.evidence import Evidence
from steps.report import model
from steps.report.stages import CONFIRM


def approvals(latest: Sequence[Evidence], begun: Iterable[model.Begun]) -> Iterator[model.Approval]:
    """Yield the answered approvals in order, then those still open.

    An engine knows both times (`begun`). Without it the last record of the approved stage and the start of `confirm` stand for
    them. An open approval is placed after all records, because an engine's rounded clock may be slightly behind.
    """
    waits = {row.stage: row for row in begun if row.task == model.APPROVAL}
    for record in latest:
        if record.task == CONFIRM:
            yield _answered(record, latest, waits.pop(record.stage, None))
    last = max((record.finished for record in latest if record.task != approval.ANNOUNCE), default=0.0)
    for row in waits.values():
        yield model.Approval(
            stage=row.stage,
            decision="",
            approver="",
            evidence="",
            status=model.NOT_RUN,
            reason="",
            time=0.0,
            asked=max(row.started, last),
        )


def _answered(record: Evidence, latest: Iterable[Evidence], known: model.Begun | None) -> model.Approval:
    answer = record.observation if isinstance(record.observation, dict) else {}
    approved = str(answer.get("approved", ""))
    ends = [earlier.finished for earlier in latest if earlier.stage == approved and earlier.finished <= record.started]
    return model.Approval(
        stage=record.stage,
        decision=str(answer.get("decision", "")),
        approver=str(answer.get("approver", "")),
        evidence=str(answer.get("evidence", "")),
        status=record.verdict.status.value if record.verdict else model.NOT_RUN,
        reason=record.verdict.reason if record.verdict else "",
        time=(known.finished if known else 0.0) or record.started,
        signed=bool(answer.get("signed", False)),
        approved=approved,
        asked=max((known.started if known else 0.0), *ends, 0.0),
    )
