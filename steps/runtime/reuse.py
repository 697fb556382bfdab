"""Reuse of an earlier run's record of the same task: input and cluster must be the same, and its stage must have passed."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from steps.clients.fleet_folder import is_selected
from steps.contract import fleet, run_records
from steps.contract.runs import quarantine
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import Status
from steps.runtime.context import Context

NONE = "none"
_RUN = "run"
"""Name in place of a stage for records about the run as a whole."""
_LOOKS = ("play", "wait")
"""Verbs that observe the cluster in every run, even if records are reused."""


def earlier(context: Context) -> Evidence | None:
    """Return the record that may be reused, from the run that the workflow names; None if there is none.

    Call it after `target.claim`, from which on the cluster is known.
    """
    run = context.environment.reuse
    # the workflow parameter has a value even if nothing is to be reused
    if run in ("", NONE) or not _is_about_the_same(context, run):
        return None
    judged = context.store.records(run, context.task.stage, "judge")
    # a stage that did not pass may have left its work half done
    if not judged or not all(record.verdict and record.verdict.is_pass for record in judged):
        return None
    candidates = context.store.records(run, context.task.stage, context.task.name)
    same = (record for record in candidates if record.input_digest == context.task.input_digest and record.shard == context.shard)
    return next((record for record in same if record.verdict and record.verdict.is_pass), None)


def _is_about_the_same(context: Context, run: str) -> bool:
    own, read = context.environment.run, context.store.read
    header, uid = read(run_records.header_key(own)), run_records.target_uid(own, read)
    if header is None or not uid or run == own or run_records.unreached_sentence(run, read):
        return False
    own_header = run_records.decode_header(header)
    return not run_records.reuse_obstacle(run, read, cluster=own_header.cluster, uid=uid, simulated=own_header.simulated)


# ---- functional checks: what an earlier run measured -----------------------------------------------------------------------------


class _Outcome(Struct, frozen=True):
    status: Status = Status.INCONCLUSIVE


class _Brief(Struct, frozen=True):
    """A stored record without its observation, to read many records of large stages quickly."""

    stage: str
    task: str
    verb: str
    started: float
    finished: float
    verdict: _Outcome | None = None
    changes: tuple[str, ...] = ()
    reused: str = ""
    error: str = ""

    @property
    def passed(self) -> bool:
        """Return True if the verdict is a pass."""
        return self.verdict is not None and self.verdict.status is Status.PASS


def reason_to_repeat(context: Context, record: Evidence, nodes: Collection[str], select: str) -> str:
    """Return why an earlier pass of a functional check no longer holds, so that the check must run again; empty if it holds.

    The pass holds if this run found everything below it unchanged: everything applied was reused, no play changed a host, each
    earlier stage passed its judge after this run observed it, no stage is left out, and the earlier check covered these nodes.
    """
    header = context.store.read(run_records.header_key(context.environment.run))
    left_out = run_records.decode_header(header).left_out if header else ()
    if left_out:
        return f"this run leaves out {', '.join(left_out)}, which may have changed"
    stages, own = _stages(context, context.environment.run), context.task.stage
    # records do not say which stage is based on which: those judged before the check began lie below it
    below = [stage for stage, records in _stages(context, record.run).items() if stage != own and _ended(records) <= record.started]
    if lacking := [stage for stage in below if stage not in stages]:
        return f"this run does not have {', '.join(lacking)}, which may have changed"
    reasons = (_why_changed(stage, records, is_own=stage == own) for stage, records in stages.items())
    if reason := next(filter(None, reasons), ""):
        return reason
    if not any(_looked(records) for records in stages.values()):
        return "no gate of this run has looked at the cluster"
    return _why_not_covered(context, record, nodes, select)


def _stages(context: Context, run: str) -> Mapping[str, list[_Brief]]:
    """Return stage → all records that a run stored, whatever attempt."""
    by_stage: dict[str, list[_Brief]] = {}
    for key in context.store.keys(f"runs/{run}/evidence"):
        data = context.store.read(key)
        if data is not None and (record := msgspec.json.decode(data, type=_Brief)).stage != _RUN:
            by_stage.setdefault(record.stage, []).append(record)
    return by_stage


def _ended(records: Iterable[_Brief]) -> float:
    """Return the time (UTC seconds) at which a stage's judge ended; infinity for a stage without a judge's record."""
    return max((record.finished for record in records if record.verb == "judge"), default=float("inf"))


def _looked(records: Iterable[_Brief]) -> bool:
    """Return True if a gate of the stage observed the cluster or its hosts in this run, whatever the verdict."""
    decided = (Status.PASS, Status.FAIL)
    return any(record.verb in _LOOKS and record.verdict is not None and record.verdict.status in decided for record in records)


def _why_changed(stage: str, records: list[_Brief], *, is_own: bool) -> str:
    """Return why a stage of this run may differ from what the earlier run left. A failed attempt may have changed something."""
    for record in records:
        if record.verb == "apply" and not record.reused:
            return f"{stage}.{record.task} was applied in this run"
        if record.verb == "play" and (record.changes or record.error):
            return f"{stage}.{record.task} changed hosts in this run"
    if is_own:
        return ""
    judged = [record for record in records if record.verb == "judge"]
    if not judged or not judged[-1].passed or not _looked(records):
        return f"stage {stage} was not proven again in this run"
    return ""


def _why_not_covered(context: Context, record: Evidence, nodes: Collection[str], select: str) -> str:
    """Return why the earlier check does not cover `nodes`.

    A check that judges nodes must have passed each of them. A check that judges them together must have had the same nodes.
    """
    rows = record.verdict.nodes if record.verdict else ()
    if rows:
        lacking = set(nodes) - {row.node for row in rows if row.status is Status.PASS}
    else:
        lacking = set(nodes) ^ set(_members(context, record.run, select))
    return f"run {record.run} measured other nodes: {', '.join(sorted(lacking)[:5])}" if lacking else ""


def _members(context: Context, run: str, select: str) -> list[str]:
    """Return the nodes of an earlier run that a selector takes and that were not set aside."""
    aside = {entry.node for entry in quarantine.entries(context.store.keys(quarantine.folder(run)), context.store.read)}
    hosts = fleet.decode_hosts(context.store.read(run_records.hosts_key(run)) or b"[]")
    return [host.name for host in hosts if is_selected(host, select) and host.name not in aside]
