"""Verb judge: decide a stage from its tasks' records, and quarantine failed nodes. It ends with 65 if the stage did not pass."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import fleet, task
from steps.contract.exit import ExitCode
from steps.contract.runs import judging, quarantine
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import NodeVerdict, Verdict
from steps.runtime import gating, quorum, target
from steps.runtime.context import Context
from steps.stages.shared.kube_objects import Node


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb judge.

    `checks` are the tasks whose records count, in running order. `members` and `required` are selectors of hosts, `needed` is the
    quorum over the members. `cordon`: the target exists by now, so nodes that this and earlier stages quarantined are cordoned in
    it.
    """

    checks: tuple[judging.JudgedTask, ...]
    needed: int
    members: str = "gpu"
    required: str = ""
    cordon: bool = False


_KINDS = {"gpu": "GPU nodes", "agent": "agents", "server": "servers"}
"""Selector of members → word for them in messages."""


def run(context: Context) -> ExitCode:
    """Judge the stage, quarantine failed nodes, and store the record. Return 0 for a pass, else 65."""
    arguments = context.arguments(Arguments)
    aside = _set_aside_earlier(context)
    selections = {arguments.members, arguments.required, *(check.select for check in arguments.checks)} - {""}
    everyone = {select: tuple(host.name for host in context.fleet.hosts(select)) for select in selections}
    want = judging.StageExpectation(
        gate=f"{context.task.stage}/judge",
        checks=arguments.checks,
        members=everyone[arguments.members],
        needed=arguments.needed,
        required=tuple(name for name in everyone.get(arguments.required, ()) if name not in everyone[arguments.members]),
        about=everyone,
        kind=_KINDS.get(arguments.members.removeprefix(fleet.TOUCHED), "nodes"),
    )
    seen = judging.StageObservation(results=tuple(_result(context, check) for check in arguments.checks), aside=aside)
    verdict = quorum.judge(seen, want)
    fresh = tuple(row for row in quorum.nodes_set_aside(verdict) if row.node not in aside)
    changes = _set_aside(context, fresh)
    if verdict.is_pass and arguments.cordon:
        changes += _cordon_all(context)
    # the nodes' verdicts are in the records of the tasks; repeating the observation here would double the store
    context.record(verdict, changes=changes)
    context.output("verdict", verdict.status.value)
    # an approval before the next stage shows it to whoever answers
    context.output("evidence", context.store.evidence_digest(context.environment.run, context.task.stage))
    return ExitCode.OK if verdict.is_pass else ExitCode.GATE_FAILED


def _result(context: Context, check: judging.JudgedTask) -> judging.TaskVerdicts:
    records = context.store.records(context.environment.run, context.task.stage, check.task)
    verdicts = [record.verdict for record in records if record.verdict is not None]
    return judging.TaskVerdicts(task=check.task, verdicts=(*verdicts, *_compared(context, check, records)))


def _compared(context: Context, check: judging.JudgedTask, records: Iterable[Evidence]) -> tuple[Verdict, ...]:
    """Return the verdict of the gate that compares the hosts of all shards, if this check has one; else nothing."""
    judged = tuple(dict.fromkeys(row.node for record in records if record.verdict for row in record.verdict.nodes))
    if check.gate not in judging.FLEET or not judged:
        return ()
    compared = gating.find(judging.FLEET[check.gate])
    name = task.file_name(context.task.stage, check.task)
    judged_task = task.decode((context.environment.tasks / name).read_bytes())
    seen: Any = msgspec.convert(_joined(record.observation for record in records), compared.observation)
    return (compared.decide(seen, compared.expect(judged_task.expectations, judged)),)


def _joined(observations: Iterable[Any]) -> dict[str, list[Any]]:
    """Return one observation made of all shards': lists of equal names are joined. A shard without an observation adds nothing."""
    joined: dict[str, list[Any]] = {}
    for observation in observations:
        for name, rows in (observation or {}).items():
            joined.setdefault(name, []).extend(rows)
    return joined


def _set_aside_earlier(context: Context) -> dict[str, str]:
    """Return node → stage for nodes that earlier stages quarantined.

    Entries of an earlier attempt of this judge are left out, because this attempt decides about them again.
    """
    run = context.environment.run
    keys = [key for key in context.store.keys(quarantine.folder(run)) if key != quarantine.key(run, context.task.stage)]
    return {entry.node: entry.stage for entry in quarantine.entries(keys, context.store.read)}


def _set_aside(context: Context, rows: tuple[NodeVerdict, ...]) -> list[str]:
    """Store the stage's quarantine entries, replacing those of an earlier attempt. Return a line for each node."""
    stage, run = context.task.stage, context.environment.run
    key = quarantine.key(run, stage)
    entries = tuple(
        quarantine.QuarantineEntry(node=row.node, stage=stage, gate=f"{stage}/judge", reason=row.sentence) for row in rows
    )
    # an earlier attempt may have set nodes aside that this one does not
    if entries or context.store.read(key) is not None:
        context.store.replace(key, quarantine.encode(entries))
    return [f"quarantined {entry.node}" for entry in entries]


def _cordon_all(context: Context) -> list[str]:
    """Cordon all quarantined nodes that the target has, unless a person released them. Return a line for each newly cordoned node.

    Stages before the target existed could not cordon their own.
    """
    keys = context.store.keys(quarantine.folder(context.environment.run))
    all_entries = quarantine.entries(keys, context.store.read)
    entries = [
        entry for entry in all_entries if not context.store.read(quarantine.release_key(context.environment.run, entry.node))
    ]
    if not entries or not context.kubeconfig().exists():
        return []
    target.claim(context)
    return [f"cordoned {entry.node}" for entry in entries if _cordon(context, entry)]


def _cordon(context: Context, entry: quarantine.QuarantineEntry) -> bool:
    """Cordon a node and return True; return False if it does not exist or is cordoned.

    An existing cordon, of somebody else or an earlier run, keeps its reason.
    """
    path = f"/api/v1/nodes/{entry.node}"
    node = context.kube.get(path, Node)

    if node is None or node.spec.unschedulable:
        return False
    note = quarantine.CordonNote(run=context.environment.run, stage=entry.stage, reason=entry.reason)
    text = msgspec.json.encode(note).decode()
    context.kube.merge(path, {"metadata": {"annotations": {quarantine.ANNOTATION: text}}, "spec": {"unschedulable": True}})
    return True
