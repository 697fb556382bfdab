"""Evidence → report: pure; what the records do not show is shown as missing, never as passed."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from steps.contract.evidence import Evidence
from steps.contract.stages.image_standing import Standing
from steps.contract.verdict import FailureClass, Status
from steps.report import checklists, model, standing
from steps.report.approvals import approvals
from steps.report.images import image
from steps.report.source import Record, Source
from steps.report.stages import JUDGE, opening
from steps.report.stages import stages as every_stage
from steps.report.upgraded import upgraded


def build(source: Source, workflow: str = "", running: bool = False, begun: Iterable[model.Begun] = ()) -> model.Report:
    """The report of one run. `workflow` is the engine's word for how it ended, where that is known; `running`: it has not ended;
    `begun`: what its engine knows of tasks and approvals that it began."""
    latest, begun = _latest(source.records), tuple(begun)
    opened = opening(latest, running)
    unchanged = standing.current(latest)
    stages = standing.spared(every_stage(source, latest, running, begun, opened.id if opened else ""), unchanged)
    times = [time for record in source.records for time in (record.evidence.started, record.evidence.finished)]
    status, sentence = _overall((opened, *stages) if opened else stages, latest, unchanged)
    return model.Report(
        run=source.header.run,
        engine=source.header.engine,
        plan=source.header.plan,
        cluster=source.header.cluster,
        owner=source.header.owner,
        revision=source.header.revision,
        operation=source.header.operation,
        upgraded=upgraded(source.header.operation, [record.evidence for record in source.records]),
        target_uid=source.target_uid or source.header.target_uid,
        status=status,
        workflow=workflow,
        sentence=sentence,
        started=min(times, default=0.0),
        finished=max(times, default=0.0),
        simulated=source.header.simulated,
        stages=stages,
        nodes=_nodes(source, latest),
        quarantine=tuple(
            msgspec.structs.replace(one, reason=one.reason.removeprefix(f"{one.node}: ")) for one in source.quarantine
        ),
        approvals=tuple(approvals(latest, begun)),
        releases=tuple(_release(release) for release in source.plan.get("releases", ())),
        tools={name: version for record in latest for name, version in record.tools.items()},
        troubles=tuple(_trouble(record, stages) for record in latest if _is_trouble(record)),
        attempts=tuple(_attempt(record) for record in source.records),
        overcome=tuple(_trouble(record, ()) for record in _overtaken(source.records, latest) if _is_trouble(record)),
        revisions=tuple(_revisions(source.records)),
        source=source.origin,
        cancelled=source.cancelled,
        opening=opened,
        running=running,
        image=image(latest),
    )


def _revisions(records: Iterable[Record]) -> Iterator[model.Revision]:
    """What Argo CD showed of each release, in the order in which it was seen, each state once."""
    last: dict[str, tuple[object, ...]] = {}
    for one in sorted((record.evidence for record in records), key=lambda one: one.finished):
        seen = one.observation.get("releases") if isinstance(one.observation, dict) else None
        for release in seen if isinstance(seen, list) else ():
            app = release.get("application") if isinstance(release, dict) else None
            if not isinstance(app, dict):
                continue
            compared, synced = (tuple(map(str, app.get(name, ()))) for name in ("revisions", "synced_revisions"))
            chart, planned = str(app.get("version", "")), str(app.get("revision", ""))
            name = str(release.get("name", ""))
            if last.get(name) != (chart, planned, compared, synced):
                last[name] = (chart, planned, compared, synced)
                yield model.Revision(
                    release=name,
                    stage=one.stage,
                    task=one.task,
                    time=one.finished,
                    chart=chart,
                    planned=planned,
                    compared=compared,
                    synced=synced,
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


def _overall(stages: tuple[model.Stage, ...], latest: tuple[Evidence, ...], unchanged: Standing | None = None) -> tuple[str, str]:
    """The run passed when every planned stage passed, or had nothing to do; else the first that did not gives status and
    sentence."""
    for stage in stages:
        if stage.status != Status.PASS.value and not standing.is_left_out(stage, unchanged):
            errors = [
                one.error for one in latest if one.error and one.stage == stage.id and not (one.verdict and one.verdict.is_pass)
            ]
            untold = next((error for error in errors if error not in stage.reason), "")
            return stage.status, f"{stage.id}: {stage.reason}" + (f" ({untold})" if untold else "")
    if not stages:
        return model.NOT_RUN, "the plan has no stages"
    if unchanged is not None:
        return Status.PASS.value, unchanged.sentence
    return Status.PASS.value, f"all {len(stages)} stages passed" if len(stages) > 1 else "its one stage passed"


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
    aside = {entry.node: entry for entry in source.quarantine}
    return tuple(
        model.Node(
            name=host.name,
            group=host.group,
            rack=host.rack,
            gates=gates[host.name],
            reason=next(
                (f"{gate}: {said}" for gate, said in reasons[host.name].items() if said),
                aside[host.name].reason if host.name in aside else "",
            ),
            reasons={gate: said for gate, said in reasons[host.name].items() if said},
            places=tuple(host.variables[name] for name in _PLACES if name in host.variables),
            aside=host.name in aside,
            aside_in=aside[host.name].stage if host.name in aside else "",
        )
        for host in source.hosts
    )


_PLACES = ("leaf", "scalable_unit")


def _release(release: dict[str, Any]) -> model.Release:
    return model.Release(**{name: str(release.get(name, "")) for name in ("id", "version", "source", "namespace", "stage")})


def _is_trouble(record: Evidence) -> bool:
    return record.verdict is not None and record.verdict.status in (Status.FAIL, Status.INCONCLUSIVE) and record.task != JUDGE


def _trouble(record: Evidence, stages: Iterable[model.Stage]) -> model.Trouble:
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
        found=tuple(one for one in record.diagnosis if one.what != checklists.LINK),
        shard=record.shard,
        attempt=record.attempt,
        time=record.finished,
        quorum=any(gate.gate == record.verdict.gate and gate.quorum for stage in stages for gate in stage.gates),
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
