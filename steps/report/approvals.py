"""Records of `confirm` → the approvals of a run: since when each was waited for, who answered when, and what that was worth."""

from collections.abc import Iterable, Iterator, Sequence

from steps.contract import approval
from steps.contract.evidence import Evidence
from steps.report import model
from steps.report.stages import CONFIRM


def approvals(latest: Sequence[Evidence], begun: Iterable[model.Begun]) -> Iterator[model.Approval]:
    """The answers in their order, then what nobody has answered. An engine (`begun`) knows both moments; without it the last
    record of the approved stage and the start of `confirm` are them, but for a moment. A wait stands after the records
    before it, whatever an engine's clock, which began with the run, has rounded."""
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
    shown = [one.finished for one in latest if one.stage == approved and one.finished <= record.started]
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
        asked=max((known.started if known else 0.0), *shown, 0.0),
    )
