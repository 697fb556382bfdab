"""The verdict on a whole stage: every check must have left its records, and enough nodes must have passed all of them."""

from collections.abc import Iterable

import msgspec

from steps.contract.judging import Check, Expectation, Observation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, inconclusive, passed


def judge(seen: Observation, want: Expectation) -> Verdict:
    """The first check that does not hold gives the reason; nodes that failed within the quorum are set aside by name."""
    by_task = {result.task: result.verdicts for result in seen.results}
    nodes: dict[str, NodeVerdict] = {}
    for check in want.checks:
        verdicts = by_task.get(check.task, ())
        missing = _missing(check, verdicts, want)
        if missing is not None:
            return missing
        _merge(nodes, verdicts)
        broken = next((verdict for verdict in verdicts if _breaks(verdict)), None)
        if broken is not None:
            return msgspec.structs.replace(broken, nodes=tuple(nodes.values()))
        _note_absent(nodes, verdicts, check, want, seen)
        short = _short(nodes, verdicts, check, want)
        if short is not None:
            return short
    return _pass(nodes, want)


def set_aside(verdict: Verdict) -> tuple[NodeVerdict, ...]:
    """The nodes that a stage which passed goes on without."""
    return tuple(row for row in verdict.nodes if row.status not in (Status.PASS, Status.SKIPPED)) if verdict.is_pass else ()


def _missing(check: Check, verdicts: tuple[Verdict, ...], want: Expectation) -> Verdict | None:
    if verdicts or check.optional:
        return None
    return inconclusive(
        want.gate,
        seen=f"task {check.task} left no record",
        expected=f"a record of gate {check.gate}",
        next_step=f"read the log of {check.task}: it ended before its gate could judge",
        failure_class=FailureClass.RUNTIME,
    )


def _breaks(verdict: Verdict) -> bool:
    """Whether a verdict stops the stage by itself: no pass, and not only because of single nodes."""
    if verdict.status in (Status.PASS, Status.SKIPPED):
        return False
    return not any(row.status not in (Status.PASS, Status.SKIPPED) for row in verdict.nodes)


def _merge(nodes: dict[str, NodeVerdict], verdicts: Iterable[Verdict]) -> None:
    """Keep each node's first non-pass; a later pass does not heal it."""
    for row in (row for verdict in verdicts for row in verdict.nodes):
        known = nodes.get(row.node)
        if known is None or known.status in (Status.PASS, Status.SKIPPED):
            nodes[row.node] = row


def _note_absent(
    nodes: dict[str, NodeVerdict], verdicts: tuple[Verdict, ...], check: Check, want: Expectation, seen: Observation
) -> None:
    """A node that a node gate says nothing about has not passed it (a shard without a record is missing nodes)."""
    if not any(verdict.nodes for verdict in verdicts):
        return
    judged = {row.node for verdict in verdicts for row in verdict.nodes}
    names = want.about[check.select] if check.select else (*want.required, *want.members)
    for name in names:
        if name in judged or (name in nodes and nodes[name].status is not Status.PASS):
            continue
        reason = seen.aside.get(name)
        nodes[name] = NodeVerdict(
            node=name,
            status=Status.INCONCLUSIVE,
            seen=f"set aside earlier: {reason}" if reason else f"no record from {check.task}",
            expected=f"a record of gate {check.gate}",
            next_step="release it after repair" if reason else f"read the log of {check.task}",
            failure_class=FailureClass.RUNTIME,
        )


def _short(nodes: dict[str, NodeVerdict], verdicts: tuple[Verdict, ...], check: Check, want: Expectation) -> Verdict | None:
    if not any(verdict.nodes for verdict in verdicts):
        return None
    bad = [row for row in nodes.values() if row.status not in (Status.PASS, Status.SKIPPED)]
    required = [row for row in bad if row.node in want.required]
    good = sum(name not in nodes or nodes[name].status is Status.PASS for name in want.members)  # no check was about the others yet
    if not required and good >= want.needed:
        return None
    fresh = {row.node for verdict in verdicts for row in verdict.nodes if row.status not in (Status.PASS, Status.SKIPPED)}
    first = (required or [row for row in bad if row.node in fresh] or bad)[0]
    everyone = [row for row in bad if row.status is Status.FAIL]
    what = f"{first.node} must pass" if required else f"{good} of {len(want.members)} nodes pass, {want.needed} needed"
    return Verdict(
        gate=check.gate,
        status=Status.FAIL if everyone else Status.INCONCLUSIVE,
        reason=f"{what}; {first.sentence}",
        seen=f"{first.node}: {first.seen}",
        expected=first.expected,
        next_step=first.next_step,
        failure_class=first.failure_class or FailureClass.HEALTH,
        nodes=tuple(nodes.values()),
    )


def _pass(nodes: dict[str, NodeVerdict], want: Expectation) -> Verdict:
    rows = tuple(nodes.values())
    aside = [row for row in rows if row.status not in (Status.PASS, Status.SKIPPED)]
    if not rows:
        return passed(want.gate, "all gates passed")
    good = sum(row.status is Status.PASS for row in rows)
    said = f"{good} of {len(rows)} nodes passed all gates"
    return passed(want.gate, f"{said}; set aside: {'; '.join(row.sentence for row in aside)}" if aside else said, rows)
