"""Decides a whole stage: every check must have left its records, and enough nodes must have passed all of them."""

from collections.abc import Iterable, Iterator

import msgspec

from steps.contract import fleet
from steps.contract.host_ranges import fold
from steps.contract.runs.judging import JudgedTask, StageExpectation, StageObservation
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, inconclusive, passed, sentence

MOST_NOTES = 50
"""Limit of notes in a stage's verdict: shards of a large fleet may each have different ones."""
_GOOD = (Status.PASS, Status.SKIPPED)
_ASIDE = "set aside in"
"""Beginning of the text about a node that an earlier stage quarantined; the stage's name follows."""


def judge(seen: StageObservation, want: StageExpectation) -> Verdict:
    """Return the verdict on a stage; if it is no pass, the first check that does not hold gives the reason.

    In a pass, nodes that failed within the quorum are named; the stage quarantines them. Notes of the checks are repeated once
    each.
    """
    notes = dict.fromkeys(note for result in seen.results for verdict in result.verdicts for note in verdict.notes)
    return msgspec.structs.replace(_judged(seen, want), notes=tuple(notes)[:MOST_NOTES])


def _judged(seen: StageObservation, want: StageExpectation) -> Verdict:
    by_task = {result.task: result.verdicts for result in seen.results}
    nodes: dict[str, NodeVerdict] = {}
    for check in want.checks:
        verdicts = by_task.get(check.task, ())
        if check.optional and not verdicts:
            continue
        broken = _incomplete(check, verdicts, want) if check.records else None
        broken = broken or _missing(check, verdicts, want) or next((row for row in verdicts if _breaks(row, want)), None)
        # merged before the quorum is counted: a node must pass all checks so far
        if broken is None:
            _merge(nodes, verdicts)
            _note_absent(nodes, verdicts, check, want, seen)
            broken = _short(nodes, verdicts, check, want)
        if broken is not None:
            return msgspec.structs.replace(broken, nodes=tuple(nodes.values()) or broken.nodes)
    return _pass(nodes, want)


def nodes_set_aside(verdict: Verdict) -> tuple[NodeVerdict, ...]:
    """Return the verdicts on the nodes that are to be quarantined: those that failed in a stage that passed. Else empty."""
    return tuple(row for row in verdict.nodes if row.status not in _GOOD) if verdict.is_pass else ()


def _missing(check: JudgedTask, verdicts: tuple[Verdict, ...], want: StageExpectation) -> Verdict | None:
    """Return a verdict if a check has no usable result: no record, only skipped ones, or no node although its gate names some."""
    skipped = [verdict for verdict in verdicts if verdict.status is Status.SKIPPED]
    if not verdicts:
        seen, next_step = f"task {check.task} left no record", f"read the log of {check.task}: it ended before its gate could judge"
    # a single shard may be skipped because none of its hosts takes part; a skipped task has measured nothing
    elif len(skipped) == len(verdicts) or (skipped and not check.fanned):
        seen, next_step = f"{check.gate} was not measured: {skipped[0].reason}", "let more nodes pass the gates before it"
    elif (
        check.per_node
        and not any(verdict.nodes for verdict in verdicts)
        and not any(_breaks(verdict, want) for verdict in verdicts)
    ):
        seen, next_step = f"{check.gate} judged no node", f"check that the fleet lists the nodes of task {check.task}"
    else:
        return None
    expected = f"a verdict of gate {check.gate}"
    return inconclusive(want.gate, seen=seen, expected=expected, next_step=next_step, failure_class=FailureClass.RUNTIME)


def _incomplete(check: JudgedTask, verdicts: tuple[Verdict, ...], want: StageExpectation) -> Verdict | None:
    """Return a verdict unless as many shards as the check wants have left a record and all of them pass.

    A record that is no pass gives the reason, because the engine starts no shard whose needs have failed; a shard without a record
    alone says little.
    """
    broken = [verdict for verdict in verdicts if not verdict.is_pass]
    absent = max(0, check.records - len(verdicts))
    if not verdicts or not (broken or absent):
        return None  # without any record the reason is that of every other task
    shards = f"{check.records} tasks {check.task}"
    if not broken:
        seen, expected = f"{absent} of {shards} left no record", f"{check.records} records of gate {check.gate}"
        next_step = f"read the logs of {check.task}: those tasks ended before their gate could judge"
        return inconclusive(want.gate, seen=seen, expected=expected, next_step=next_step, failure_class=FailureClass.RUNTIME)
    cause = min(broken, key=_consequence)
    whose = f"{len(broken)} of {shards} did not pass" + (f" and {absent} were not started or left no record" if absent else "")
    # a skipped task of a graph has built nothing, which is no result of the stage
    status = Status.INCONCLUSIVE if cause.status is Status.SKIPPED else cause.status
    return msgspec.structs.replace(cause, status=status, reason=f"{whose}; {cause.reason}")


def _consequence(verdict: Verdict) -> tuple[bool, bool]:
    """Return a key by which failures come before what is undecided, and causes before what only lacks something else."""
    return verdict.status is not Status.FAIL, verdict.failure_class is FailureClass.DEPENDENCY


def _breaks(verdict: Verdict, want: StageExpectation) -> bool:
    """Return True if a verdict stops the stage by itself: it is no pass, and not only because of single nodes.

    If no nodes of a fleet are judged (test boots of a node image), there is no quorum, so every failure stops the stage.
    """
    lone = all(row.status in _GOOD for row in verdict.nodes)
    return verdict.status not in _GOOD and (lone or not (want.members or want.required))


def _merge(nodes: dict[str, NodeVerdict], verdicts: Iterable[Verdict]) -> None:
    """Add verdicts on nodes to `nodes`. The first verdict on a node that is no pass stays; a later pass does not replace it."""
    for row in (row for verdict in verdicts for row in verdict.nodes):
        known = nodes.get(row.node)

        if known is None or known.status in _GOOD:
            nodes[row.node] = row


def _note_absent(
    nodes: dict[str, NodeVerdict], verdicts: tuple[Verdict, ...], check: JudgedTask, want: StageExpectation, seen: StageObservation
) -> None:
    """Add a verdict that is no pass for each node that a gate should have judged and did not, as when a shard left no record."""
    judged = {row.node for verdict in verdicts for row in verdict.nodes}
    if not judged:
        return
    names = want.about[check.select] if check.select else (*want.required, *want.members)
    for name in names:
        if name in judged or (name in nodes and nodes[name].status is not Status.PASS):
            continue
        stage = seen.aside.get(name)  # the reason is in that stage's verdict
        nodes[name] = NodeVerdict(
            node=name,
            status=Status.INCONCLUSIVE,
            seen=f"{_ASIDE} {stage}" if stage else f"no record from {check.task}",
            expected="" if stage else f"a record of gate {check.gate}",
            next_step="" if stage else f"read the log of {check.task}",
            failure_class=FailureClass.RUNTIME,
        )


def _short(
    nodes: dict[str, NodeVerdict], verdicts: tuple[Verdict, ...], check: JudgedTask, want: StageExpectation
) -> Verdict | None:
    """Return a verdict that stops the stage if too few nodes have passed so far; else None."""
    if not any(verdict.nodes for verdict in verdicts):
        return None
    bad = [row for row in nodes.values() if row.status not in _GOOD]
    required = [row for row in bad if row.node in want.required]
    # a member that no check has judged yet may still pass
    good = sum(name not in nodes or nodes[name].status is Status.PASS for name in want.members)
    about = want.about.get(check.select, ()) if check.needed else ()
    passing = sum(name not in nodes or nodes[name].status is Status.PASS for name in about)
    short = passing < check.needed
    if not required and good >= want.needed and not short:
        return None
    fresh = {row.node for verdict in verdicts for row in verdict.nodes if row.status not in _GOOD}
    culprits = required or [row for row in bad if row.node in fresh] or bad
    counted = f"{good} of {len(want.members)} {want.kind} pass, {want.needed} needed"
    if short:
        counted = f"{passing} of {len(about)} {want.kind} of {_shown(check.select)} pass, {check.needed} needed"
        bad = [row for row in bad if row.node in about]
        culprits = required or [row for row in bad if row.node in fresh] or bad
    what = f"{fold(row.node for row in required)} must pass" if required else counted
    return _too_few(check.gate, what, culprits)


def _shown(select: str) -> str:
    """Return the words for the hosts of a selector: the groups that it names, or the selector itself."""
    groups = fleet.selected_groups(select)
    return f"group{'s' if len(groups) > 1 else ''} {', '.join(groups)}" if groups else select


def _too_few(gate: str, what: str, culprits: list[NodeVerdict]) -> Verdict:
    if not culprits:
        expected, next_step = "a pass of every needed node", "see why the gates skipped the others"
        return inconclusive(gate, seen=what, expected=expected, next_step=next_step)
    # a play that ends with a failed host leaves the others inconclusive, so the failed one has the cause
    first, everyone = next((row for row in culprits if row.status is Status.FAIL), culprits[0]), fold(row.node for row in culprits)
    # one sentence is enough for nodes that failed alike
    alike = all(_cause(row) == _cause(first) for row in culprits)
    whose = everyone if alike else first.node
    seen = f"{whose}: {first.seen}"
    next_step = first.next_step.replace(first.node, whose) or f"repair {everyone}, then run again"
    details = sentence(seen, first.expected, next_step)
    return Verdict(
        gate=gate,
        status=Status.FAIL if any(row.status is Status.FAIL for row in culprits) else Status.INCONCLUSIVE,
        reason=f"{what}; {details}" if alike or everyone in what else f"{what}, not by {everyone}; {details}",
        seen=seen,
        expected=first.expected,
        next_step=next_step,
        failure_class=first.failure_class or FailureClass.HEALTH,
    )


def _cause(row: NodeVerdict) -> tuple[str, str]:
    return row.seen, row.expected


def _pass(nodes: dict[str, NodeVerdict], want: StageExpectation) -> Verdict:
    """Return the pass of a stage; if too few members were judged at all, an inconclusive verdict instead."""
    rows = tuple(nodes.values())
    if not rows:
        return passed(want.gate, "all gates passed")
    good = sum(row.status is Status.PASS for row in rows)
    members = sum(name in nodes and nodes[name].status is Status.PASS for name in want.members)
    if members < want.needed:
        what = f"{members} of {len(want.members)} {want.kind} were judged and pass, {want.needed} needed"
        return msgspec.structs.replace(_too_few(want.gate, what, []), nodes=rows)
    aside = [row for row in rows if row.status not in _GOOD]
    return passed(want.gate, "; ".join([f"{good} of {len(rows)} nodes passed all gates", *_told_aside(aside)]), rows)


def _told_aside(aside: Iterable[NodeVerdict]) -> Iterator[str]:
    """Yield clauses about quarantined nodes: those of this stage with their reasons, those of earlier stages by name alone."""
    earlier: dict[str, list[str]] = {}
    fresh = []
    for row in aside:
        if row.seen.startswith(_ASIDE):
            earlier.setdefault(row.seen, []).append(row.node)
        else:
            fresh.append(row.sentence)
    yield from [f"set aside: {'; '.join(fresh)}"] if fresh else []
    yield from (f"{fold(names)} {seen}" for seen, names in earlier.items())
