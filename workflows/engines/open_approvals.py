"""Open approvals of a run: read one together with its evidence, check who may answer, and sign the answer."""

import contextlib
import re
from collections.abc import Collection

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.clients.store import Store
from steps.contract import stage_contracts, task
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.runs import approval
from steps.errors import StepError
from workflows import user_paths
from workflows.engines.folders import RunFolder

PREFIX = approval.NODE_PREFIX
"""Prefix of the names of suspend nodes that are approvals: `approve-STAGE`."""
RUN = "run"
"""Stage id by which an approval before the first stage refers to the evidence of the task `open`."""
SHOWN = "shown.json"
"""Name of the file in which this machine keeps, by suspend node, the digest of the evidence that it last showed."""
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


class NotWaiting(ValueError):
    """Exception: no approval is open, or several are and none was named."""

    hint = "see what a run waits for with `bringup status RUN`"


class NotAllowed(ValueError):
    """Exception: the given name cannot be an approver's, or is not among the approvers."""


class NotSigned(ValueError):
    """Exception: the spec lists an SSH key for this approver, but there is no key file to sign with."""

    hint = "sign with --key and the private SSH key of this name"


class WrongKey(ValueError):
    """Exception: the private key is not one of those that the spec lists for this approver."""

    hint = "sign with the private key of a listed public one: the run still waits"


class OpenApproval(Struct, frozen=True, kw_only=True):
    """An approval that waits for an answer, as commands show it and answer it.

    `stage` is the stage that starts afterwards, `approved` the stage whose evidence is approved, `evidence` the digest of that
    evidence, `verdict` the verdict of that stage. `approvers` maps the names that may answer to their SSH keys; empty means
    anybody.
    """

    run: str
    node: str
    stage: str
    approved: str
    evidence: str
    approvers: dict[str, tuple[str, ...]]
    verdict: str = ""
    changes: str = ""
    """Changes that the approved stages would make, if an earlier stage found them by comparison, and sessions that end; else ""."""

    @property
    def what(self) -> str:
        """Return the name of what is approved: a stage of the run, or the run's opening."""
        return f"the opening of {self.run}" if self.approved == RUN else f"{self.approved} in {self.run}"

    @property
    def about(self) -> str:
        """Return one line that names what is approved, its verdict, its changes and the digest of its evidence."""
        changes = f"; {self.changes}" if self.changes else ""
        return f"{self.what}: {self.verdict or 'no verdict'}{changes}; evidence {self.evidence}"

    def how(self, namespace: str | None = None) -> str:
        """Return the command that approves exactly this evidence; `namespace` is that of the runs for a run on Argo, else None."""
        return approval.command(self.run, evidence=self.evidence, namespace=namespace)

    def row(self, namespace: str | None = None) -> dict[str, str]:
        """Return the fields that the command `status` shows; `namespace` is the runs' namespace for a run on Argo, else None."""
        return {
            "stage": self.stage,
            "about": self.about,
            "evidence": self.evidence,
            "approvers": ", ".join(sorted(self.approvers)),
            "how": self.how(namespace),
        }


def read_approval(folder: RunFolder, node: str) -> OpenApproval:
    """Return the approval that a suspend node waits for, with the evidence as it is now."""
    stage = node.removeprefix(PREFIX).replace("-", "_")
    name = task.file_name(stage, "confirm")
    arguments = task.decode((folder.inputs / "tasks" / name).read_bytes()).arguments
    approved, store = str(arguments["approved"]), Store(folder.home.store)
    return OpenApproval(
        run=folder.name,
        node=node,
        stage=stage,
        approved=approved,
        evidence=store.evidence_digest(folder.name, approved),
        approvers=msgspec.convert(arguments.get("approvers", {}), dict[str, tuple[str, ...]]),
        verdict=_verdict(store, folder.name, approved),
        changes="; ".join(filter(None, (changes(folder), _note(store, folder.name, stage)))),
    )


def answer_command(folder: RunFolder, node: str) -> tuple[str, str]:
    """Return the digest of the evidence at a suspend node, and the command that answers the approval.

    If the evidence is unreadable, the digest is "" and the command names none.
    """
    try:
        pending = read_approval(folder, node)
    except (StepError, OSError):
        return "", approval.command(folder.name)
    return pending.evidence, pending.how()


def _verdict(store: Store, run: str, approved: str) -> str:
    """Return the recorded verdict of a stage's judge, or of the task `open`, as a sentence; "" if there is none."""
    try:
        records = store.records(run, approved, "open" if approved == RUN else "judge")
    except UNREADABLE_JSON:
        return "its verdict cannot be read"
    verdicts = [record.verdict for record in records if record.verdict is not None]
    return f"{verdicts[-1].status.value}: {verdicts[-1].reason}" if verdicts else ""


def _note(store: Store, run: str, stage: str) -> str:
    """Return the consequences that the approval before a stage shows, from the records of an earlier stage; "" without any."""
    note = stage_contracts.approval_note(stage)
    try:
        records = store.records(run, note.stage, note.task) if note is not None else ()
        return note.text(record.observation for record in records) if note is not None else ""
    except (StepError, *UNREADABLE_JSON):
        return "what it ends cannot be read"


def changes(folder: RunFolder) -> str:
    """Return what the stages after an approval would change, as an earlier stage observed it; "" if no stage compared anything."""
    store, evidence = Store(folder.home.store), f"runs/{folder.name}/evidence"
    try:
        stages = dict.fromkeys(key.removeprefix(f"{evidence}/").split("/")[0] for key in store.keys(evidence))
        lines = [
            declared.changes(record.observation for record in store.records(folder.name, declared.stage, declared.task))
            for declared in stage_contracts.declared_shortcuts(stages)
        ]
    except (StepError, OSError, *UNREADABLE_JSON):
        return ""
    return "; ".join(line for line in lines if line)


def choose(folder: RunFolder, nodes: list[str], stage: str = "") -> OpenApproval:
    """Return the only open approval among suspend nodes, or the one before `stage`. Raises NotWaiting unless there is just one."""
    waiting = [read_approval(folder, node) for node in nodes if node.startswith(PREFIX)]
    matching = [pending for pending in waiting if not stage or pending.stage == stage]
    if len(matching) == 1:
        return matching[0]
    if not waiting:
        raise NotWaiting(f"run {folder.name} waits for no approval")
    raise NotWaiting(f"run {folder.name} waits before {', '.join(pending.stage for pending in waiting)}; name one with --stage")


def parameters(pending: OpenApproval, decision: str, approver: str) -> dict[str, str]:
    """Return the three output parameters that answer an approval. Raises NotAllowed if `approver` may not answer it."""
    check_name(approver, pending.approvers)
    return {"decision": decision, "approver": approver, "evidence": pending.evidence}


class EvidenceChanged(ValueError):
    """Exception: the evidence is not the one that was shown to the approver."""

    hint = "look at it again: bringup status RUN, bringup report RUN; then approve what they show"


class NoDigest(ValueError):
    """Exception: the text given as a digest of evidence is not a digest."""

    hint = "`bringup status RUN` prints the command with the whole digest"


def remember(folder: RunFolder, approvals: Collection[OpenApproval]) -> None:
    """Store on this machine which evidence was shown for these approvals. A failed write is ignored: it counts as not shown."""
    shown = _shown(folder) | {pending.node: pending.evidence for pending in approvals}
    with contextlib.suppress(OSError):
        folder.engine.mkdir(parents=True, exist_ok=True)
        (folder.engine / SHOWN).write_bytes(msgspec.json.encode(shown))


def was_shown(folder: RunFolder, pending: OpenApproval) -> str:
    """Return the digest of the evidence that this machine last showed for the approval, or "" if it showed none."""
    return _shown(folder).get(pending.node, "")


def _shown(folder: RunFolder) -> dict[str, str]:
    try:
        return msgspec.json.decode((folder.engine / SHOWN).read_bytes(), type=dict[str, str])
    except (OSError, *UNREADABLE_JSON):
        return {}


def check_shown(pending: OpenApproval, shown: str) -> None:
    """Raise EvidenceChanged if the evidence is not the shown one with the digest `shown`, NoDigest if that is not a digest."""
    if not _DIGEST.fullmatch(shown):
        raise NoDigest(f"{shown!r} is not a digest of evidence (sha256: and 64 hexadecimal digits)")
    if shown != pending.evidence:
        raise EvidenceChanged(f"the evidence of {pending.approved} was {shown} when it was shown, it is {pending.evidence} now")


def check_name(approver: str, approvers: Collection[str]) -> None:
    """Raise NotAllowed if `approver` cannot be an approver's name, or if `approvers` is not empty and lacks it."""
    if not approval.is_name(approver):
        raise NotAllowed(f"{approver!r} cannot be an approver's name: letters, digits and ._@+- only")
    # a rehearsal answers its approvals itself
    if approvers and approver not in approvers and approver != approval.REHEARSAL:
        raise NotAllowed(f"{approver} is not among the approvers ({', '.join(sorted(approvers))})")


def check_key(pending: OpenApproval, decision: str, approver: str, key: str) -> None:
    """Raise NotSigned if the approver must sign but gave no key, or if the key file does not exist. It sends nothing."""
    if decision == approval.PASS and not key and pending.approvers.get(approver):
        raise NotSigned(f"the spec lists an SSH key for {approver}: this approval must be signed")
    if key and not user_paths.expand_home(key).is_file():
        raise NotSigned(f"there is no key file {key}")


def sign(folder: RunFolder, pending: OpenApproval, approver: str, key: str) -> None:
    """Sign an approval with a private key file, and write the signature into this machine's run store.

    Raises WrongKey if the spec lists other keys for this approver: the task `confirm` would refuse the answer and end the run.
    """
    fields = {
        "run": pending.run,
        "stage": pending.approved,
        "evidence": pending.evidence,
        "decision": approval.PASS,
        "approver": approver,
    }
    statement = msgspec.convert(fields, approval.Statement)
    signed = checked_signature(approval.statement_bytes(statement), approver, pending.approvers.get(approver, ()), key)
    Store(folder.home.store).replace(approval.signature_key(pending.run, pending.approved, approver), signed)


def checked_signature(data: bytes, approver: str, public_keys: tuple[str, ...], key: str) -> bytes:
    """Return a signature by a private key file. Raises WrongKey if `public_keys` are given and none of them belongs to the file."""
    signed = signature.sign(data, user_paths.expand_home(key))
    if public_keys and signature.verify(data, signed, approver, public_keys):
        used = signature.key_of(data, signed) or "another key"
        raise WrongKey(f"{key} is {used}, which is not the key that the spec lists for {approver}; nothing was answered")
    return signed
