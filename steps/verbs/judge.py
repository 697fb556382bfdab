"""Verb judge: decides a stage from the records of its tasks, sets failed nodes aside by name, and alone ends with 65."""

from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import judging, quarantine
from steps.contract.exit import ExitCode
from steps.contract.verdict import NodeVerdict
from steps.gates import judge as gate
from steps.verbs import target
from steps.verbs.context import Context

QUARANTINE_ANNOTATION = "bringup/quarantine"


class Arguments(Struct, frozen=True, kw_only=True):
    """`checks` in running order; `members` and `required` are selections of hosts, `needed` the quorum over the members.
    `cordon`: nodes set aside are Kubernetes nodes by now and get cordoned."""

    checks: tuple[judging.Check, ...]
    needed: int
    members: str = "gpu"
    required: str = ""
    cordon: bool = False


class Node(Struct, frozen=True):
    """A node, for its existence."""

    metadata: dict[str, Any] = {}


def run(context: Context) -> ExitCode:
    """Judge, set aside, store."""
    wanted = context.arguments(Arguments)
    aside = context.quarantined(without=context.task.stage)  # what an earlier attempt of this task set aside is still to be done
    selections = {wanted.members, wanted.required, *(check.select for check in wanted.checks)} - {""}
    everyone = {select: tuple(host.name for host in context.fleet.hosts(select)) for select in selections}
    want = judging.Expectation(
        gate=f"{context.task.stage}/judge",
        checks=wanted.checks,
        members=everyone[wanted.members],
        needed=wanted.needed,
        required=tuple(name for name in everyone.get(wanted.required, ()) if name not in everyone[wanted.members]),
        about=everyone,
    )
    seen = judging.Observation(results=tuple(_result(context, check) for check in wanted.checks), aside=aside)
    verdict = gate.judge(seen, want)
    fresh = tuple(row for row in gate.set_aside(verdict) if row.node not in aside)
    changes = _set_aside(context, fresh, wanted.cordon)
    # the nodes' verdicts are in the records of the tasks; repeating the observation here would double the store
    context.record(verdict, changes=changes)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK if verdict.is_pass else ExitCode.GATE_FAILED


def _result(context: Context, check: judging.Check) -> judging.Result:
    records = context.store.records(context.environment.run, context.task.stage, check.task)
    return judging.Result(task=check.task, verdicts=tuple(record.verdict for record in records if record.verdict is not None))


def _set_aside(context: Context, rows: tuple[NodeVerdict, ...], cordon: bool) -> list[str]:
    """Store the stage's quarantine and cordon its nodes; a second attempt does the same again and changes nothing."""
    stage, run = context.task.stage, context.environment.run
    key = quarantine.key(run, stage)
    entries = tuple(quarantine.Entry(node=row.node, stage=stage, gate=f"{stage}/judge", reason=row.sentence) for row in rows)
    if entries or context.store.read(key) is not None:
        context.store.replace(key, quarantine.encode(entries))
    if entries and cordon:
        target.claim(context)
    cordoned = [change for entry in entries if cordon and (change := _cordon(context, entry))]
    return [*(f"quarantined {entry.node}" for entry in entries), *cordoned]


def _cordon(context: Context, entry: quarantine.Entry) -> str:
    path = f"/api/v1/nodes/{entry.node}"
    if context.kube.get(path, Node) is None:
        return ""
    note = msgspec.json.encode({"stage": entry.stage, "reason": entry.reason}).decode()
    context.kube.merge(path, {"metadata": {"annotations": {QUARANTINE_ANNOTATION: note}}, "spec": {"unschedulable": True}})
    return f"cordoned {entry.node}"
