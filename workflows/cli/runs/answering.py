"""Answers an approval on either engine, on evidence that has been seen: named, shown by `status` on this machine, or shown now."""

import sys

import typer

from steps.contract import approval
from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.argo import acting as argo
from workflows.cli.runs import following
from workflows.engines import approvals
from workflows.engines.approvals import Open
from workflows.engines.argo import answer, follow
from workflows.engines.folders import RunFolder


class NotShown(ValueError):
    """Somebody would approve evidence that they have not seen."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def here(folder: RunFolder, who: str, stage: str, *, reject: bool, key: str, evidence: str) -> int:
    """Of a run of this machine."""
    one = approvals.choose(folder, following.open_nodes(folder), stage)
    following.require_engine(folder)
    given = _settled(folder, one, who, reject=reject, key=key, evidence=evidence)
    if key and not reject:
        approvals.sign(folder, one, who, key)
    following.send(folder, "approve", one.node, given, f"answered by {who}")
    output.lines([_sentence(one, who, reject=reject)])
    return ExitCode.OK


def on_argo(away: argo.Away, who: str, stage: str, *, reject: bool, key: str, evidence: str) -> int:
    """Of a run on Argo; the evidence is read from its store just now."""
    workflow = away.workflow()
    nodes = [node.display_name for node in follow.gates(workflow)]
    answer.waiting(away.home, workflow, away.folder, [node for node in nodes if node.startswith(approvals.PREFIX)])
    one = approvals.choose(away.folder, nodes, stage)
    given = _settled(away.folder, one, who, reject=reject, key=key, evidence=evidence)
    if key and not reject:
        answer.keep_signature(away.home, workflow, away.folder, one, who, key)
    answer.answer(away.home, away.name, one.node, given, f"answered by {who}")
    output.lines([_sentence(one, who, reject=reject)])
    return ExitCode.OK


def _settled(folder: RunFolder, one: Open, who: str, *, reject: bool, key: str, evidence: str) -> dict[str, str]:
    """The output parameters of an answer that may be given; nothing is sent yet. To reject one need have seen nothing.

    Raises NotAllowed, NotSigned, NotShown, NoDigest, EvidenceChanged.
    """
    decision = approval.REJECT if reject else approval.PASS
    given = approvals.parameters(one, decision, who)
    approvals.check_key(one, decision, who, key)
    if evidence or not reject:
        _require_shown(folder, one, who, evidence)
    return given


def _require_shown(folder: RunFolder, one: Open, who: str, evidence: str) -> None:
    """Whether the evidence is what somebody names, else what this machine has shown, else what a terminal shows now."""
    if shown := evidence or approvals.was_shown(folder, one):
        approvals.check_shown(one, shown)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotShown(
            f"whoever approves says on what evidence, and this machine has shown none of it yet: {one.about}",
            f"if that is to be approved: --evidence {one.evidence}",
        )
    output.lines([f"{one.stage} waits for an approval of {one.about}"])
    if not typer.confirm(f"approve it as {who}?"):
        raise NotShown(f"nothing was answered: {one.run} goes on waiting", f"`bringup report {one.run}` shows more of it")


def _sentence(one: Open, who: str, *, reject: bool) -> str:
    """What was approved or rejected, by whom, on what evidence, and what becomes of the stage that waited."""
    said = f"{'rejected' if reject else 'approved'} {one.what} as {who}, evidence {one.evidence}"
    return f"{said}; {one.stage} {'does not start' if reject else 'starts'}"
