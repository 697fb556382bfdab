"""Answer an approval on either engine.

The evidence must be named by digest, or have been shown by `status` here, or be shown now.
"""

from steps.contract.runs import approval
from workflows.app.runs import argo_runs, local_runs
from workflows.app.runs.screen import Screen
from workflows.engines import open_approvals
from workflows.engines.argo import approval_patches, follower
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import read_status
from workflows.engines.open_approvals import OpenApproval


class NotShown(ValueError):
    """Error for an approval of evidence that the person has not seen."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def answer_here(screen: Screen, folder: RunFolder, who: str, stage: str, *, reject: bool, key: str, evidence: str) -> str:
    """Approve (or `reject`) what a local run waits for, and return a sentence about the answer."""
    nodes = [node.name for node in read_status(folder.engine).gates]
    open_approval = open_approvals.choose(folder, nodes, stage)
    local_runs.require_engine(folder)
    parameters = _settled(screen, folder, open_approval, who, reject=reject, key=key, evidence=evidence)
    if key and not reject:
        open_approvals.sign(folder, open_approval, who, key)
    local_runs.send(folder, "approve", open_approval.node, parameters, f"answered by {who}")
    return _sentence(open_approval, who, reject=reject)


def answer_on_argo(screen: Screen, away: argo_runs.ArgoRun, who: str, stage: str, *, reject: bool, key: str, evidence: str) -> str:
    """Approve (or `reject`) what a run on Argo waits for, and return a sentence.

    The evidence is read from the run's store first.
    """
    workflow = away.workflow()
    nodes = [node.display_name for node in follower.open_gates(workflow)]
    approval_patches.waiting_approvals(
        away.home, workflow, away.folder, [node for node in nodes if node.startswith(open_approvals.PREFIX)]
    )
    open_approval = open_approvals.choose(away.folder, nodes, stage)
    parameters = _settled(screen, away.folder, open_approval, who, reject=reject, key=key, evidence=evidence)
    if key and not reject:
        approval_patches.store_signature(away.home, workflow, away.folder, open_approval, who, key)
    approval_patches.answer(away.home, away.name, open_approval.node, parameters, f"answered by {who}")
    return _sentence(open_approval, who, reject=reject)


def _settled(
    screen: Screen, folder: RunFolder, open_approval: OpenApproval, who: str, *, reject: bool, key: str, evidence: str
) -> dict[str, str]:
    """Check that an answer is allowed and return its parameters.

    Raises NotAllowed, NotSigned, NotShown, NoDigest, EvidenceChanged.
    """
    decision = approval.REJECT if reject else approval.PASS
    parameters = open_approvals.parameters(open_approval, decision, who)
    open_approvals.check_key(open_approval, decision, who, key)
    if evidence or not reject:
        _require_shown(screen, folder, open_approval, who, evidence)
    return parameters


def _require_shown(screen: Screen, folder: RunFolder, open_approval: OpenApproval, who: str, evidence: str) -> None:
    """Raise NotShown unless the evidence is named, was shown on this machine, or is confirmed on the terminal."""
    if shown := evidence or open_approvals.was_shown(folder, open_approval):
        open_approvals.check_shown(open_approval, shown)
        return
    if not screen.can_ask():
        raise NotShown(
            f"whoever approves says on what evidence, and this machine has shown none of it yet: {open_approval.about}",
            f"if that is to be approved: --evidence {open_approval.evidence}",
        )
    screen.lines([f"{open_approval.stage} waits for an approval of {open_approval.about}"])
    if not screen.confirm(f"approve it as {who}?"):
        raise NotShown(
            f"nothing was answered: {open_approval.run} goes on waiting", f"`bringup report {open_approval.run}` shows more of it"
        )


def _sentence(open_approval: OpenApproval, who: str, *, reject: bool) -> str:
    decision = f"{'rejected' if reject else 'approved'} {open_approval.what} as {who}, evidence {open_approval.evidence}"
    return f"{decision}; {open_approval.stage} {'does not start' if reject else 'starts'}"
