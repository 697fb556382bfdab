"""Builds the stages of a report from their records; a stage without a judge's verdict gets the reason why it has none."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from steps.contract import run_records
from steps.contract.run_records import Cancelled
from steps.contract.runs import approval
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Verb
from steps.contract.verdict import Status, Verdict
from steps.report import model
from steps.report.source import StoredRun

JUDGE, CONFIRM = "judge", approval.CONFIRM

_ORDER = (Status.FAIL, Status.INCONCLUSIVE, Status.SKIPPED, Status.PASS)


def opening(latest: Iterable[Evidence], running: bool) -> model.StageReport | None:
    """Return the result of the task before all stages if its last verdict is no pass, else None.

    None while the run goes on, because the task may be retried.
    """
    records = [record for record in latest if (record.stage, record.task) == (run_records.STAGE, run_records.OPEN)]
    if running or not any(record.verdict and not record.verdict.is_pass for record in records):
        return None
    return _stage({"id": run_records.OPEN, "title": "Opening the run"}, records, (model.NOT_RUN, ""), {}, judge=run_records.OPEN)


def stages(
    source: StoredRun, latest: Sequence[Evidence], running: bool, begun: Iterable[model.Begun], stopped: str = ""
) -> tuple[model.StageReport, ...]:
    """Return all planned stages with their results.

    `begun` are tasks that an engine started; without it the logs in the store name some. `stopped` is the task or stage after which
    no stage began, if known.
    """
    all_begun = [*begun, *(model.Begun(stage=stage, task=task) for stage, task in source.logged)]
    rows = [row for row in all_begun if row.task != approval.ANNOUNCE]  # an announcement says nothing about the stage
    roles = {host.name: host.role for host in source.hosts}
    stages_so_far: list[model.StageReport] = []
    for planned in source.plan.get("stages", ()):
        records = [record for record in latest if record.stage == planned["id"] and record.task != approval.ANNOUNCE]
        begun_here = [row for row in rows if row.stage == planned["id"]]
        stopper = next((stage.id for stage in stages_so_far if stage.judged and stage.status != Status.PASS.value), stopped)
        why = _running(records, begun_here) if running else _ended(planned, records, begun_here, source.cancelled, stopper)
        every_attempt = [record.evidence for record in source.records if record.evidence.stage == planned["id"]]
        played = _played(every_attempt)
        stage = _stage(planned, records, why, roles)
        stages_so_far.append(msgspec.structs.replace(stage, played=len(played), changed=sum(played.values())))
    return tuple(stages_so_far)


def _running(records: Sequence[Evidence], begun: Sequence[model.Begun]) -> tuple[str, str]:
    """Return status and reason of a stage without a verdict while the run goes on."""
    tasks = [row.task for row in begun]
    if records or any(task != model.APPROVAL for task in tasks):
        return Status.INCONCLUSIVE.value, "its judge has not spoken yet"
    return model.NOT_RUN, "waits for an approval" if tasks else "not started yet"


def _ended(
    planned: Mapping[str, Any], records: Sequence[Evidence], begun: Sequence[model.Begun], cancelled: Cancelled | None, stopper: str
) -> tuple[str, str]:
    """Return status and reason of a stage without a verdict after the run has ended.

    `stopper` is an earlier stage, or `open`, whose verdict was no pass.
    """
    recorded = {record.task for record in records}
    lost = [row for row in begun if row.task != model.APPROVAL and (row.is_open or row.task not in recorded)]
    waited = CONFIRM not in recorded and any(row.task == model.APPROVAL for row in begun)
    cut = cancelled.sentence if cancelled else "interrupted"
    # tasks that began and left no record were cut off
    if lost:
        names = ", ".join(dict.fromkeys(row.task for row in lost))
        over = not cancelled and all(row.finished for row in lost)
        return Status.INCONCLUSIVE.value, f"{names} ended without a record" if over else f"{cut} while {names} ran"
    if records:
        missing = next((task["name"] for task in planned.get("tasks", ()) if task["name"] not in recorded), "")
        return Status.INCONCLUSIVE.value, f"{cut}: {missing} left no record" if missing else "ended before its judge"
    if waited:
        return model.NOT_RUN, f"{cut} while it waited for an approval"
    if stopper:
        return model.NOT_RUN, f"{stopper} did not pass"
    return model.NOT_RUN, f"{cancelled.sentence} before it left a record" if cancelled else "the run ended before it left a record"


def _stage(
    planned: Mapping[str, Any], records: Sequence[Evidence], unjudged: tuple[str, str], roles: Mapping[str, str], judge: str = JUDGE
) -> model.StageReport:
    judged = next((record.verdict for record in records if record.task == judge and record.verdict), None)
    # without an approval the judge never runs, and the refusal is the reason
    refused = next(
        (record.verdict for record in records if record.task == CONFIRM and record.verdict and not record.verdict.is_pass), None
    )
    verdict = judged or refused
    bad = verdict if verdict and not verdict.is_pass else None
    status, reason = (verdict.status.value, verdict.reason) if verdict else unjudged
    return model.StageReport(
        id=planned["id"],
        title=planned.get("title", planned["id"]),
        status=status,
        reason=reason,
        gates=tuple(_gate(gate, records, roles, status == Status.PASS.value) for gate in planned.get("gates", ())),
        started=min((record.started for record in records), default=0.0),
        finished=max((record.finished for record in records), default=0.0),
        failure_class=bad.failure_class.value if bad and bad.failure_class else "",
        next_step=bad.next_step if bad else "",
        rollback=planned.get("rollback", ""),
        changes=sum(not change.startswith("unchanged") for record in records for change in record.changes),
        judged=verdict is not None,
        notes=verdict.notes if verdict else (),
    )


def _played(records: Iterable[Evidence]) -> dict[str, bool]:
    """Return node → True if a play changed it, for all hosts that plays observed."""
    changed_hosts: dict[str, bool] = {}
    for record in records:
        observation = record.observation if record.verb == Verb.PLAY and isinstance(record.observation, dict) else {}
        rows = observation.get("nodes")
        for row in rows if isinstance(rows, list) else ():
            if not isinstance(row, dict) or not isinstance(row.get("node"), str):
                continue  # of another version's play
            changed_hosts[row["node"]] = changed_hosts.get(row["node"], False) or bool(row.get("changed"))
    return changed_hosts


def _gate(gate: str, records: Iterable[Evidence], roles: Mapping[str, str], stage_passed: bool) -> model.GateReport:
    verdicts = [record.verdict for record in records if record.verdict and record.verdict.gate == gate and record.task != JUDGE]
    if not verdicts:
        return model.GateReport(gate=gate, status=model.NOT_RUN)
    worst = min(verdicts, key=lambda verdict: _ORDER.index(verdict.status))
    expected = sum(len(verdict.nodes) for verdict in verdicts)
    return model.GateReport(
        gate=gate,
        status=worst.status.value,
        reason=worst.reason,
        passed=sum(verdict.passed_nodes for verdict in verdicts),
        expected=expected,
        counted=_counted(verdicts, roles),
        quorum=stage_passed and expected > 0 and worst.status in (Status.FAIL, Status.INCONCLUSIVE),
    )


def _counted(verdicts: Iterable[Verdict], roles: Mapping[str, str]) -> str:
    """Return counts by role, `3 of 3 servers, 14 of 16 agents`; empty if all pass or all nodes have one role."""
    counts: dict[str, list[bool]] = {}
    for row in (row for verdict in verdicts for row in verdict.nodes):
        counts.setdefault(roles.get(row.node, ""), []).append(row.status is Status.PASS)
    if len(counts) < 2 or "" in counts or all(map(all, counts.values())):
        return ""
    return ", ".join(f"{sum(passes)} of {len(passes)} {role}s" for role, passes in sorted(counts.items(), reverse=True))
