"""Evidence → report: pure; what the records do not show is shown as missing, never as passed."""

from collections.abc import Iterable, Iterator
from typing import Any

from steps.contract.evidence import Evidence
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.report import checklists, model
from steps.report.source import Record, Source

JUDGE, CONFIRM = "judge", "confirm"

UNJUDGED = {Status.INCONCLUSIVE.value: "ended before its judge", model.NOT_RUN: "an earlier stage did not pass, or the run ended"}
"""Why a stage without its judge's verdict has its status: once the run has ended, that is."""

UNDER_WAY = {Status.INCONCLUSIVE.value: "its judge has not spoken yet", model.NOT_RUN: "not started yet"}
"""The same while the run still goes on."""


def build(source: Source, workflow: str = "", running: bool = False) -> model.Report:
    """The report of one run. `workflow` is the engine's word for how it ended, where that is known; `running`: it has not ended."""
    latest = _latest(source.records)
    planned = [dict(stage) for stage in source.plan.get("stages", ())]
    stages = tuple(_stage(stage, latest, UNDER_WAY if running else UNJUDGED) for stage in planned)
    times = [time for record in source.records for time in (record.evidence.started, record.evidence.finished)]
    status, sentence = _overall(stages, latest)
    return model.Report(
        run=source.header.run,
        engine=source.header.engine,
        plan=source.header.plan,
        cluster=source.header.cluster,
        owner=source.header.owner,
        revision=source.header.revision,
        target_uid=source.target_uid or source.header.target_uid,
        status=status,
        workflow=workflow,
        sentence=sentence,
        started=min(times, default=0.0),
        finished=max(times, default=0.0),
        simulated=source.header.simulated,
        stages=stages,
        nodes=_nodes(source, latest),
        quarantine=source.quarantine,
        approvals=tuple(_approval(record) for record in latest if record.task == CONFIRM),
        releases=tuple(_release(release) for release in source.plan.get("releases", ())),
        tools={name: version for record in latest for name, version in record.tools.items()},
        troubles=tuple(_trouble(record) for record in latest if _is_trouble(record)),
        attempts=tuple(_attempt(record) for record in source.records),
        overcome=tuple(_trouble(record) for record in _overtaken(source.records, latest) if _is_trouble(record)),
    )


def _latest(records: Iterable[Record]) -> tuple[Evidence, ...]:
    """The last attempt of each shard of each task, in the order in which tasks were first started."""
    last: dict[tuple[str, str, int], Evidence] = {}
    for record in records:
        one = record.evidence
        key = (one.stage, one.task, one.shard)
        if key not in last or one.attempt > last[key].attempt:
            last[key] = one
    return tuple(last.values())


def _overtaken(records: Iterable[Record], latest: tuple[Evidence, ...]) -> Iterator[Evidence]:
    """Attempts that a later one of the same shard followed."""
    kept = {(one.stage, one.task, one.shard, one.attempt) for one in latest}
    for record in records:
        one = record.evidence
        if (one.stage, one.task, one.shard, one.attempt) not in kept:
            yield one


def _stage(planned: dict[str, Any], latest: tuple[Evidence, ...], unjudged_because: dict[str, str]) -> model.Stage:
    mine = [record for record in latest if record.stage == planned["id"]]
    judged = next((record.verdict for record in mine if record.task == JUDGE and record.verdict), None)
    refused = next(
        (record.verdict for record in mine if record.task == CONFIRM and record.verdict and not record.verdict.is_pass), None
    )
    verdict = judged or refused
    unjudged = Status.INCONCLUSIVE.value if mine else model.NOT_RUN
    return model.Stage(
        id=planned["id"],
        title=planned.get("title", planned["id"]),
        status=verdict.status.value if verdict else unjudged,
        reason=verdict.reason if verdict else unjudged_because[unjudged],
        gates=tuple(_gate(gate, mine) for gate in planned.get("gates", ())),
        started=min((record.started for record in mine), default=0.0),
        finished=max((record.finished for record in mine), default=0.0),
        failure_class=_class(verdict),
        next_step=verdict.next_step if verdict and not verdict.is_pass else "",
        rollback=planned.get("rollback", ""),
        changes=sum(not change.startswith("unchanged") for record in mine for change in record.changes),
    )


def _class(verdict: Verdict | None) -> str:
    return verdict.failure_class.value if verdict and verdict.failure_class and not verdict.is_pass else ""


def _gate(gate: str, records: Iterable[Evidence]) -> model.Gate:
    verdicts = [record.verdict for record in records if record.verdict and record.verdict.gate == gate and record.task != JUDGE]
    if not verdicts:
        return model.Gate(gate=gate, status=model.NOT_RUN)
    worst = min(verdicts, key=lambda verdict: _ORDER.index(verdict.status))
    return model.Gate(
        gate=gate,
        status=worst.status.value,
        reason=worst.reason,
        passed=sum(verdict.passed_nodes for verdict in verdicts),
        expected=sum(len(verdict.nodes) for verdict in verdicts),
    )


_ORDER = (Status.FAIL, Status.INCONCLUSIVE, Status.SKIPPED, Status.PASS)


def _overall(stages: tuple[model.Stage, ...], latest: tuple[Evidence, ...]) -> tuple[str, str]:
    """The run passed when every planned stage passed; else the first that did not gives status and sentence."""
    for stage in stages:
        if stage.status != Status.PASS.value:
            errors = [
                one.error for one in latest if one.error and one.stage == stage.id and not (one.verdict and one.verdict.is_pass)
            ]
            untold = next((error for error in errors if error not in stage.reason), "")
            return stage.status, f"{stage.id}: {stage.reason}" + (f" ({untold})" if untold else "")
    if not stages:
        return model.NOT_RUN, "the plan has no stages"
    return Status.PASS.value, f"all {len(stages)} stages passed"


def _nodes(source: Source, latest: tuple[Evidence, ...]) -> tuple[model.Node, ...]:
    gates: dict[str, dict[str, str]] = {host.name: {} for host in source.hosts}
    reasons: dict[str, dict[str, str]] = {host.name: {} for host in source.hosts}
    for record in latest:
        if record.verdict is None or record.task == JUDGE:
            continue
        for row in record.verdict.nodes:
            bad = row.status not in (Status.PASS, Status.SKIPPED)
            gates.setdefault(row.node, {})[record.verdict.gate] = row.status.value
            reasons.setdefault(row.node, {})[record.verdict.gate] = row.sentence if bad else ""
    aside = {entry.node: entry.reason for entry in source.quarantine}
    return tuple(
        model.Node(
            name=host.name,
            group=host.group,
            rack=host.rack,
            gates=gates[host.name],
            reason=next((f"{gate}: {said}" for gate, said in reasons[host.name].items() if said), aside.get(host.name, "")),
            reasons={gate: said for gate, said in reasons[host.name].items() if said},
            places=tuple(host.variables[name] for name in _PLACES if name in host.variables),
            aside=host.name in aside,
        )
        for host in source.hosts
    )


_PLACES = ("leaf", "scalable_unit")


def _approval(record: Evidence) -> model.Approval:
    answer = record.observation if isinstance(record.observation, dict) else {}
    return model.Approval(
        stage=record.stage,
        decision=str(answer.get("decision", "")),
        approver=str(answer.get("approver", "")),
        evidence=str(answer.get("evidence", "")),
        status=record.verdict.status.value if record.verdict else model.NOT_RUN,
        reason=record.verdict.reason if record.verdict else "",
        time=record.finished,
        signed=bool(answer.get("signed", False)),
    )


def _release(release: dict[str, Any]) -> model.Release:
    return model.Release(**{name: str(release.get(name, "")) for name in ("id", "version", "source", "namespace", "stage")})


def _is_trouble(record: Evidence) -> bool:
    return record.verdict is not None and record.verdict.status in (Status.FAIL, Status.INCONCLUSIVE) and record.task != JUDGE


def _trouble(record: Evidence) -> model.Trouble:
    assert record.verdict is not None
    kind = record.verdict.failure_class or FailureClass.RUNTIME
    listed = checklists.every()[kind]
    return model.Trouble(
        stage=record.stage,
        task=record.task,
        gate=record.verdict.gate,
        reason=record.verdict.reason,
        failure_class=kind.value,
        inspect=listed.inspect,
        recover=listed.recover,
        found=record.diagnosis,
        shard=record.shard,
        attempt=record.attempt,
        time=record.finished,
    )


def _attempt(record: Record) -> model.Attempt:
    one = record.evidence
    return model.Attempt(
        key=record.key,
        sha256=record.sha256,
        stage=one.stage,
        task=one.task,
        verb=one.verb,
        shard=one.shard,
        attempt=one.attempt,
        started=one.started,
        finished=one.finished,
        status=one.verdict.status.value if one.verdict else "recorded",
        reason=one.verdict.reason if one.verdict else "",
        reused=one.reused,
        error=one.error,
        changes=one.changes,
    )
