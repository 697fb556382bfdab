"""Builds a report from evidence, without I/O. Anything that the records do not show appears as missing, never as passed."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from steps.contract.measurements import Measurement, merged
from steps.contract.runs import approval
from steps.contract.runs.evidence import Evidence
from steps.contract.runs.quarantine import QuarantineEntry
from steps.contract.verdict import FailureClass, Status
from steps.report import acceptance_sentence, checklists, model, product_parts
from steps.report.localisation_rounds import localisation_rounds
from steps.report.nccl_curves import nccl_curves, scaling_points
from steps.report.product_parts import ProductReport
from steps.report.release_changes import changed_releases
from steps.report.source import Record, StoredRun
from steps.report.stages import CONFIRM, JUDGE, opening
from steps.report.stages import stages as every_stage


def build(source: StoredRun, workflow: str = "", running: bool = False, begun: Iterable[model.Begun] = ()) -> model.Report:
    """Return the report of one run, made from what the store has of it.

    `workflow` is the engine's word for how the run ended, if known. `running`: the run has not ended. `begun`: tasks and approvals
    that its engine started.
    """
    latest, begun = _latest(source.records), tuple(begun)
    opened = opening(latest, running)
    parts = product_parts.reports_of(dict.fromkeys(record.stage for record in latest))
    sections = product_parts.sections(parts, latest)
    unchanged = next((reason for part in parts if (reason := part.nothing_to_do(latest))), "")
    stages = _skipped(every_stage(source, latest, running, begun, opened.id if opened else ""), unchanged)
    times = [time for record in source.records for time in (record.evidence.started, record.evidence.finished)]
    untested = (*_untested(source.plan), *_not_tested(parts, latest))
    status, sentence = _overall((opened, *stages) if opened else stages, latest, unchanged, untested)
    report = model.Report(
        run=source.header.run,
        engine=source.header.engine,
        plan=source.header.plan,
        cluster=source.header.cluster,
        owner=source.header.owner,
        revision=source.header.revision,
        operation=source.header.operation,
        upgraded=changed_releases(source.header.operation, [record.evidence for record in source.records]),
        target_uid=source.target_uid or source.header.target_uid,
        status=status,
        workflow=workflow,
        sentence=sentence,
        started=min(times, default=0.0),
        finished=max(times, default=0.0),
        simulated=source.header.simulated,
        stages=stages,
        nodes=_nodes(source, latest),
        quarantine=tuple(_without_node(entry) for entry in source.quarantine),
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
        untested=untested,
        running=running,
        measured=tuple(_measured(latest)),
        curves=nccl_curves(latest),
        scaling=scaling_points(latest),
        localisation=localisation_rounds(latest),
        versions=merged(record.verdict.versions for record in latest if record.verdict),
        image=sections.get("image"),
        stack=sections.get("stack"),
    )
    return msgspec.structs.replace(report, acceptance="" if running else acceptance_sentence.sentence(report))


def _without_node(entry: QuarantineEntry) -> QuarantineEntry:
    """Return an entry whose reason does not repeat the name of its node."""
    return msgspec.structs.replace(entry, reason=entry.reason.removeprefix(f"{entry.node}: "))


def _revisions(records: Iterable[Record]) -> Iterator[model.RevisionReport]:
    """Yield the states of each release that Argo CD showed, in order of time; a state that repeats is yielded once."""
    last: dict[str, tuple[object, ...]] = {}
    for attempt in sorted((record.evidence for record in records), key=lambda attempt: attempt.finished):
        releases = attempt.observation.get("releases") if isinstance(attempt.observation, dict) else None
        for release in releases if isinstance(releases, list) else ():
            app = release.get("application") if isinstance(release, dict) else None
            if not isinstance(app, dict):
                continue
            compared, synced = (tuple(map(str, app.get(name, ()))) for name in ("revisions", "synced_revisions"))
            chart, planned = str(app.get("version", "")), str(app.get("revision", ""))
            name = str(release.get("name", ""))
            # only changes: each attempt of a waiting gate repeats the state
            if last.get(name) != (chart, planned, compared, synced):
                last[name] = (chart, planned, compared, synced)
                yield model.RevisionReport(
                    release=name,
                    stage=attempt.stage,
                    task=attempt.task,
                    time=attempt.finished,
                    chart=chart,
                    planned=planned,
                    compared=compared,
                    synced=synced,
                )


def _latest(records: Iterable[Record]) -> tuple[Evidence, ...]:
    """Return the last attempt of each shard of each task, in the order in which tasks were first started."""
    last: dict[tuple[str, str, int], Evidence] = {}
    for record in records:
        attempt = record.evidence
        key = (attempt.stage, attempt.task, attempt.shard)
        if key not in last or attempt.attempt > last[key].attempt:
            last[key] = attempt
    return tuple(last.values())


def _overtaken(records: Iterable[Record], latest: tuple[Evidence, ...]) -> Iterator[Evidence]:
    """Yield the records of attempts that were followed by a later attempt of the same shard."""
    latest_attempts = {(attempt.stage, attempt.task, attempt.shard, attempt.attempt) for attempt in latest}
    for record in records:
        attempt = record.evidence
        if (attempt.stage, attempt.task, attempt.shard, attempt.attempt) not in latest_attempts:
            yield attempt


def _skipped(stages: tuple[model.StageReport, ...], unchanged: str) -> tuple[model.StageReport, ...]:
    """Return the stages, with those that never ran marked as skipped if `unchanged` says why nothing was left to do."""
    if not unchanged:
        return stages
    replace, skipped = msgspec.structs.replace, Status.SKIPPED.value
    return tuple(
        replace(stage, status=skipped, reason=unchanged) if stage.status == model.NOT_RUN and not stage.judged else stage
        for stage in stages
    )


def _untested(plan: dict[str, Any]) -> Iterator[model.UntestedReport]:
    """Yield the tests that the plan says the spec rules out."""
    for part in plan.get("untested", ()):
        yield model.UntestedReport(**{name: str(part.get(name, "")) for name in ("stage", "test", "reason")})


def _not_tested(parts: Iterable[ProductReport], latest: Sequence[Evidence]) -> Iterator[model.UntestedReport]:
    """Yield the tests that the run left out because of the machine that it ran on."""
    for part in parts:
        yield from (model.UntestedReport(stage=stage, test=test, reason=reason) for stage, test, reason in part.untested(latest))


def _overall(
    stages: tuple[model.StageReport, ...],
    latest: tuple[Evidence, ...],
    unchanged: str,
    untested: tuple[model.UntestedReport, ...],
) -> tuple[str, str]:
    """Return status and headline of the run.

    The run passed if every planned stage passed or had nothing to do; else the first stage that did not pass gives both. The
    headline of a pass names the tests that the spec or a machine rules out; their stages count as passed, and not as proven.
    """
    for stage in stages:
        is_skipped = bool(unchanged) and not stage.judged and stage.status == Status.SKIPPED.value
        if stage.status != Status.PASS.value and not is_skipped:
            errors = [
                record.error
                for record in latest
                if record.error and record.stage == stage.id and not (record.verdict and record.verdict.is_pass)
            ]
            # the error of a task may say more than the verdict of its stage
            untold = next((error for error in errors if error not in stage.reason), "")
            return stage.status, f"{stage.id}: {stage.reason}" + (f" ({untold})" if untold else "")
    if not stages:
        return model.NOT_RUN, "the plan has no stages"
    if unchanged:
        return Status.PASS.value, unchanged
    if untested:
        proven = len([stage for stage in stages if stage.id not in {part.stage for part in untested}])
        return Status.PASS.value, f"{proven} of {len(stages)} stages proven; {'; '.join(_not_run(untested))}"
    return Status.PASS.value, f"all {len(stages)} stages passed" if len(stages) > 1 else "its one stage passed"


def _not_run(untested: Iterable[model.UntestedReport]) -> Iterator[str]:
    """Yield one sentence for each reason for which tests did not run."""
    tests: dict[str, list[model.UntestedReport]] = {}
    for part in untested:
        tests.setdefault(part.reason, []).append(part)
    for reason, parts in tests.items():
        names = " and ".join(part.test for part in parts)
        yield f"{names} at {reason}" if parts[0].level else f"{names} not run: {reason}"


def _measured(latest: Iterable[Evidence]) -> Iterator[Measurement]:
    """Yield each quantity once, in running order; the values of nodes that several tasks or shards measured are put together."""
    quantities: dict[str, list[Measurement]] = {}
    for record in latest:
        for row in record.verdict.measured if record.verdict else ():
            quantities.setdefault(row.quantity, []).append(row)
    for rows in quantities.values():
        last = rows[-1]
        of_its_columns = (row.values for row in rows if row.columns == last.columns)
        together = {node: row for values in of_its_columns for node, row in values.items()}
        yield msgspec.structs.replace(last, values=together, unjudged=any(row.unjudged for row in rows))


def _nodes(source: StoredRun, latest: tuple[Evidence, ...]) -> tuple[model.HostReport, ...]:
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
        model.HostReport(
            name=host.name,
            group=host.group,
            rack=host.rack,
            gates=gates[host.name],
            reason=next(
                (f"{gate}: {sentence}" for gate, sentence in reasons[host.name].items() if sentence),
                aside[host.name].reason if host.name in aside else "",
            ),
            reasons={gate: sentence for gate, sentence in reasons[host.name].items() if sentence},
            places=tuple(host.variables[name] for name in _PLACES if name in host.variables),
            aside=host.name in aside,
            aside_in=aside[host.name].stage if host.name in aside else "",
        )
        for host in source.hosts
    )


_PLACES = ("leaf", "scalable_unit")


def _release(release: dict[str, Any]) -> model.ReleaseReport:
    return model.ReleaseReport(**{name: str(release.get(name, "")) for name in ("id", "version", "source", "namespace", "stage")})


def _is_trouble(record: Evidence) -> bool:
    return record.verdict is not None and record.verdict.status in (Status.FAIL, Status.INCONCLUSIVE) and record.task != JUDGE


def _trouble(record: Evidence, stages: Iterable[model.StageReport]) -> model.TroubleReport:
    assert record.verdict is not None
    kind = record.verdict.failure_class or FailureClass.RUNTIME
    listed = checklists.every()[kind]
    return model.TroubleReport(
        stage=record.stage,
        task=record.task,
        gate=record.verdict.gate,
        reason=record.verdict.reason,
        failure_class=kind.value,
        inspect=listed.inspect,
        recover=listed.recover,
        found=tuple(finding for finding in record.diagnosis if finding.what != checklists.LINK),
        shard=record.shard,
        attempt=record.attempt,
        time=record.finished,
        quorum=any(gate.gate == record.verdict.gate and gate.quorum for stage in stages for gate in stage.gates),
    )


def _attempt(record: Record) -> model.Attempt:
    attempt = record.evidence
    return model.Attempt(
        key=record.key,
        sha256=record.sha256,
        stage=attempt.stage,
        task=attempt.task,
        verb=attempt.verb,
        shard=attempt.shard,
        attempt=attempt.attempt,
        started=attempt.started,
        finished=attempt.finished,
        status=attempt.verdict.status.value if attempt.verdict else "recorded",
        reason=attempt.verdict.reason if attempt.verdict else "",
        reused=attempt.reused,
        error=attempt.error,
        changes=attempt.changes,
    )


def approvals(latest: Sequence[Evidence], begun: Iterable[model.Begun]) -> Iterator[model.ApprovalReport]:
    """Yield the answered approvals in order, then those still open.

    `begun` has the times at which an engine began and ended to wait. Without it the last record of the approved stage and the start
    of verb `confirm` stand for them. An open approval is placed after all records, because an engine's rounded clock may be
    slightly behind.
    """
    waits = {row.stage: row for row in begun if row.task == model.APPROVAL}
    for record in latest:
        if record.task == CONFIRM:
            yield _answered(record, latest, waits.pop(record.stage, None))
    last = max((record.finished for record in latest if record.task != approval.ANNOUNCE), default=0.0)
    for row in waits.values():
        yield model.ApprovalReport(
            stage=row.stage,
            decision="",
            approver="",
            evidence="",
            status=model.NOT_RUN,
            reason="",
            time=0.0,
            asked=max(row.started, last),
        )


def _answered(record: Evidence, latest: Iterable[Evidence], known: model.Begun | None) -> model.ApprovalReport:
    answer = record.observation if isinstance(record.observation, dict) else {}
    approved = str(answer.get("approved", ""))
    ends = [earlier.finished for earlier in latest if earlier.stage == approved and earlier.finished <= record.started]
    return model.ApprovalReport(
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
