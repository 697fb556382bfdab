"""Answers an approval: what is approved, the digest of its evidence, and a signature where the spec lists keys."""

from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.clients.store import Store
from steps.contract import approval, task
from workflows.engines.folders import RunFolder

PREFIX = approval.NODE_PREFIX
"""Suspend nodes of approvals are called `approve-STAGE`."""


class NotWaiting(ValueError):
    """No approval is open, or it is not clear which."""

    hint = "see what a run waits for with `bringup status RUN`"


class NotAllowed(ValueError):
    """The name cannot approve here."""


class NotSigned(ValueError):
    """The spec lists a key for this approver, and none was given to sign with."""

    hint = "sign with --key and the private SSH key of this name"


class Open(Struct, frozen=True, kw_only=True):
    """An approval that waits: before which stage, on what evidence, and who may answer (empty: anybody)."""

    run: str
    node: str
    stage: str
    approved: str
    evidence: str
    approvers: dict[str, tuple[str, ...]]


def read(folder: RunFolder, node: str) -> Open:
    """The approval behind a suspend node, with the evidence as it is now."""
    stage = node.removeprefix(PREFIX).replace("-", "_")
    name = task.file_name(stage, "confirm")
    told = task.decode((folder.inputs / "tasks" / name).read_bytes()).arguments
    approved = str(told["approved"])
    return Open(
        run=folder.name,
        node=node,
        stage=stage,
        approved=approved,
        evidence=Store(folder.home.store).evidence_digest(folder.name, approved),
        approvers=msgspec.convert(told.get("approvers", {}), dict[str, tuple[str, ...]]),
    )


def choose(folder: RunFolder, nodes: list[str], stage: str = "") -> Open:
    """The one open approval, or the one before `stage`. Raises NotWaiting."""
    waiting = [read(folder, node) for node in nodes if node.startswith(PREFIX)]
    matching = [one for one in waiting if not stage or one.stage == stage]
    if len(matching) == 1:
        return matching[0]
    if not waiting:
        raise NotWaiting(f"run {folder.name} waits for no approval")
    raise NotWaiting(f"run {folder.name} waits before {', '.join(one.stage for one in waiting)}; name one with --stage")


def parameters(one: Open, decision: str, approver: str) -> dict[str, str]:
    """The three output parameters that answer an approval. Raises NotAllowed for a name that cannot be an approver's."""
    check_name(approver, one.approvers)
    return {"decision": decision, "approver": approver, "evidence": one.evidence}


class EvidenceChanged(ValueError):
    """The evidence is not what was shown."""

    hint = "look at it again: bringup status RUN, bringup report RUN; then approve what they show"


def check_shown(one: Open, shown: str) -> None:
    """Raise EvidenceChanged when the evidence is not what somebody was shown (empty: nothing is known of that)."""
    if shown and shown != one.evidence:
        raise EvidenceChanged(f"the evidence of {one.approved} was {shown} when it was shown, it is {one.evidence} now")


def check_name(approver: str, approvers: Collection[str]) -> None:
    """Raise NotAllowed for a name that cannot be an approver's, or is not among those who may approve (empty: anybody)."""
    if not approval.is_name(approver):
        raise NotAllowed(f"{approver!r} cannot be an approver's name: letters, digits and ._@+- only")
    if approvers and approver not in approvers and approver != approval.REHEARSAL:
        raise NotAllowed(f"{approver} is not among the approvers ({', '.join(sorted(approvers))})")


def answer(folder: RunFolder, one: Open, decision: str, approver: str, key: str = "") -> dict[str, str]:
    """A person's answer as output parameters, its signature in the store where the spec lists a key for this name.

    Raises NotAllowed, and NotSigned before anything is sent: the run goes on waiting.
    """
    given = parameters(one, decision, approver)
    if decision == approval.PASS and key:
        sign(folder, one, approver, key)
    elif decision == approval.PASS and one.approvers.get(approver):
        raise NotSigned(f"the spec lists an SSH key for {approver}: this approval must be signed")
    return given


def sign(folder: RunFolder, one: Open, approver: str, key: str) -> None:
    """Sign a pass with a private key file and put the signature into the store."""
    said = {"run": one.run, "stage": one.approved, "evidence": one.evidence, "decision": approval.PASS, "approver": approver}
    statement = msgspec.convert(said, approval.Statement)
    signed = signature.sign(approval.statement_bytes(statement), Path(key).expanduser())
    Store(folder.home.store).replace(approval.signature_key(one.run, one.approved, approver), signed)
