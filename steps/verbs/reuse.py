"""Reuse: an earlier run's record of this very task, if input and cluster are the same and its stage passed (design §4)."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from steps.clients.fleet import selected
from steps.contract import fleet, quarantine
from steps.contract import run as contract
from steps.contract.evidence import Evidence
from steps.contract.verdict import Status
from steps.verbs.context import Context

NONE = "none"
_RUN = "run"
"""Folder of the records of the run as a whole, beside those of its stages."""
_LOOKS = ("play", "wait")
"""Verbs that look at the cluster in every run, whatever is reused."""


def earlier(context: Context) -> Evidence | None:
    """The record that may be reused, from the run that the workflow names; None when nothing may.

    To be asked after `target.claim`, from when on the cluster is known.
    """
    run = context.environment.reuse
    if run in ("", NONE) or not _is_about_the_same(context, run):
        return None
    judged = context.store.records(run, context.task.stage, "judge")
    if not judged or not all(record.verdict and record.verdict.is_pass for record in judged):
        return None
    mine = context.store.records(run, context.task.stage, context.task.name)
    same = (record for record in mine if record.input_digest == context.task.input_digest and record.shard == context.shard)
    return next((record for record in same if record.verdict and record.verdict.is_pass), None)


def _is_about_the_same(context: Context, run: str) -> bool:
    own, read = context.environment.run, context.store.read
    header, uid = read(contract.header_key(own)), contract.target_uid(own, read)
    if header is None or not uid or run == own or contract.unreached(run, read):
        return False
    mine = contract.decode_header(header)
    return not contract.why_not_reused(run, read, cluster=mine.cluster, uid=uid, simulated=mine.simulated)


# ---- functional checks: what an earlier run measured -----------------------------------------------------------------------------


class Outcome(Struct, frozen=True):
    """The status of a stored verdict."""

    status: Status = Status.INCONCLUSIVE


class Brief(Struct, frozen=True):
    """What a stored record says of its task, without what the task saw: records of large stages are many."""

    stage: str
    task: str
    verb: str
    started: float
    finished: float
    verdict: Outcome | None = None
    changes: tuple[str, ...] = ()
    reused: str = ""
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether its verdict was a pass."""
        return self.verdict is not None and self.verdict.status is Status.PASS


def why_again(context: Context, found: Evidence, nodes: Collection[str], select: str) -> str:
    """Why an earlier pass of a functional check says nothing about now, so that it must be measured again; empty when it holds.

    It holds where this run found all below it as it was: everything applied was reused, no play changed a host, each earlier
    stage passed its judge after a look of this run, no stage is left out, and the earlier check covered these nodes.
    """
    header = context.store.read(contract.header_key(context.environment.run))
    left_out = contract.decode_header(header).left_out if header else ()
    if left_out:
        return f"this run leaves out {', '.join(left_out)}, which may have changed"
    now, own = _stages(context, context.environment.run), context.task.stage
    below = [stage for stage, records in _stages(context, found.run).items() if stage != own and _ended(records) <= found.started]
    if lacking := [stage for stage in below if stage not in now]:
        return f"this run does not have {', '.join(lacking)}, which may have changed"
    reasons = (_why_changed(stage, records, is_own=stage == own) for stage, records in now.items())
    if reason := next(filter(None, reasons), ""):
        return reason
    if not any(_looked(records) for records in now.values()):
        return "no gate of this run has looked at the cluster"
    return _why_not_covered(context, found, nodes, select)


def _stages(context: Context, run: str) -> Mapping[str, list[Brief]]:
    """Every attempt that a run recorded, by stage."""
    found: dict[str, list[Brief]] = {}
    for key in context.store.keys(f"runs/{run}/evidence"):
        data = context.store.read(key)
        if data is not None and (record := msgspec.json.decode(data, type=Brief)).stage != _RUN:
            found.setdefault(record.stage, []).append(record)
    return found


def _ended(records: Iterable[Brief]) -> float:
    """When a stage was judged; a stage without a judge has not ended before anything."""
    return max((record.finished for record in records if record.verb == "judge"), default=float("inf"))


def _looked(records: Iterable[Brief]) -> bool:
    """Whether a gate of the stage saw the cluster or its hosts in this run; what it saw is the judge's matter."""
    decided = (Status.PASS, Status.FAIL)
    return any(record.verb in _LOOKS and record.verdict is not None and record.verdict.status in decided for record in records)


def _why_changed(stage: str, records: list[Brief], *, is_own: bool) -> str:
    """Why a stage of this run is not as the earlier run left it. An attempt that ended with an error may have changed something."""
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


def _why_not_covered(context: Context, found: Evidence, nodes: Collection[str], select: str) -> str:
    """A check that judges nodes must have passed each; one that judges them together must have had the same nodes."""
    rows = found.verdict.nodes if found.verdict else ()
    if rows:
        lacking = set(nodes) - {row.node for row in rows if row.status is Status.PASS}
    else:
        lacking = set(nodes) ^ set(_members(context, found.run, select))
    return f"run {found.run} measured other nodes: {', '.join(sorted(lacking)[:5])}" if lacking else ""


def _members(context: Context, run: str, select: str) -> list[str]:
    """Nodes of an earlier run that a selector takes and that were not set aside."""
    entries = (context.store.read(key) for key in context.store.keys(f"runs/{run}/quarantine"))
    aside = {entry.node for data in entries if data for entry in quarantine.decode(data)}
    hosts = fleet.decode_hosts(context.store.read(contract.hosts_key(run)) or b"[]")
    return [host.name for host in hosts if selected(host, select) and host.name not in aside]
