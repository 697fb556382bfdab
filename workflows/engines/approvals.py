"""Answers an approval: what is approved, the digest of its evidence, and a signature where the spec lists keys."""

import contextlib
import re
from collections.abc import Collection

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.clients.store import Store
from steps.contract import announcement, approval, task
from steps.contract.stages import image_standing
from steps.errors import StepError
from workflows import places
from workflows.engines.folders import RunFolder

PREFIX = approval.NODE_PREFIX
"""Suspend nodes of approvals are called `approve-STAGE`."""
RUN = "run"
"""What stands before the first stage: the run's own evidence, which `open` wrote."""
SHOWN = "shown.json"
"""What this machine has shown of the approvals of a run: digests of evidence by suspend node."""
_DIGEST = re.compile("sha256:[0-9a-f]{64}")


class NotWaiting(ValueError):
    """No approval is open, or it is not clear which."""

    hint = "see what a run waits for with `bringup status RUN`"


class NotAllowed(ValueError):
    """The name cannot approve here."""


class NotSigned(ValueError):
    """The spec lists a key for this approver, and none was given to sign with."""

    hint = "sign with --key and the private SSH key of this name"


class Open(Struct, frozen=True, kw_only=True):
    """An approval that waits: before which stage, on what evidence with what verdict, and who may answer (empty: anybody)."""

    run: str
    node: str
    stage: str
    approved: str
    evidence: str
    approvers: dict[str, tuple[str, ...]]
    verdict: str = ""
    changes: str = ""
    """What is about to change, where an earlier stage of the run compared it; empty where none did."""

    @property
    def what(self) -> str:
        """What is approved, by name."""
        return f"the opening of {self.run}" if self.approved == RUN else f"{self.approved} in {self.run}"

    @property
    def about(self) -> str:
        """What is approved, with its verdict and evidence, in one line."""
        changes = f"; {self.changes}" if self.changes else ""
        return f"{self.what}: {self.verdict or 'no verdict'}{changes}; evidence {self.evidence}"

    def how(self, namespace: str | None = None) -> str:
        """The command that answers on just this evidence; `namespace` is that of a run on Argo."""
        return announcement.command(self.run, evidence=self.evidence, namespace=namespace)

    def row(self, namespace: str | None = None) -> dict[str, str]:
        """What `status` tells of it; `namespace` as for `how`."""
        return {
            "stage": self.stage,
            "about": self.about,
            "evidence": self.evidence,
            "approvers": ", ".join(sorted(self.approvers)),
            "how": self.how(namespace),
        }


def read(folder: RunFolder, node: str) -> Open:
    """The approval behind a suspend node, with the evidence as it is now."""
    stage = node.removeprefix(PREFIX).replace("-", "_")
    name = task.file_name(stage, "confirm")
    told = task.decode((folder.inputs / "tasks" / name).read_bytes()).arguments
    approved, store = str(told["approved"]), Store(folder.home.store)
    return Open(
        run=folder.name,
        node=node,
        stage=stage,
        approved=approved,
        evidence=store.evidence_digest(folder.name, approved),
        approvers=msgspec.convert(told.get("approvers", {}), dict[str, tuple[str, ...]]),
        verdict=_verdict(store, folder.name, approved),
        changes=changes(folder),
    )


def how(folder: RunFolder, node: str) -> tuple[str, str]:
    """The digest of the evidence behind a suspend node, and the command that answers; that alone where none can be read now."""
    try:
        one = read(folder, node)
    except (StepError, OSError):
        return "", announcement.command(folder.name)
    return one.evidence, one.how()


def _verdict(store: Store, run: str, approved: str) -> str:
    """What came of a stage, as its judge recorded it; of the opening what `open` did."""
    try:
        records = store.records(run, approved, "open" if approved == RUN else "judge")
    except msgspec.DecodeError:
        return "its verdict cannot be read"
    found = [record.verdict for record in records if record.verdict is not None]
    return f"{found[-1].status.value}: {found[-1].reason}" if found else ""


def changes(folder: RunFolder) -> str:
    """How the packages of an image differ from the published ones; empty where the run did not compare any."""
    try:
        kept = Store(folder.home.store).records(folder.name, image_standing.ID, image_standing.TASK)
    except (StepError, OSError, msgspec.DecodeError):
        return ""
    return image_standing.against(one.observation for one in kept)


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


class NoDigest(ValueError):
    """What somebody gave as the digest of evidence is none."""

    hint = "`bringup status RUN` prints the command with the whole digest"


def remember(folder: RunFolder, every: Collection[Open]) -> None:
    """Remember on this machine which evidence was shown. What cannot be remembered counts as not shown."""
    kept = _shown(folder) | {one.node: one.evidence for one in every}
    with contextlib.suppress(OSError):
        folder.engine.mkdir(parents=True, exist_ok=True)
        (folder.engine / SHOWN).write_bytes(msgspec.json.encode(kept))


def was_shown(folder: RunFolder, one: Open) -> str:
    """The digest of its evidence when this machine last showed it; empty where it did not."""
    return _shown(folder).get(one.node, "")


def _shown(folder: RunFolder) -> dict[str, str]:
    try:
        return msgspec.json.decode((folder.engine / SHOWN).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def check_shown(one: Open, shown: str) -> None:
    """Raise EvidenceChanged when the evidence is not what somebody was shown, NoDigest when that is no digest at all."""
    if not _DIGEST.fullmatch(shown):
        raise NoDigest(f"{shown!r} is no digest of evidence: sha256: and 64 hexadecimal digits")
    if shown != one.evidence:
        raise EvidenceChanged(f"the evidence of {one.approved} was {shown} when it was shown, it is {one.evidence} now")


def check_name(approver: str, approvers: Collection[str]) -> None:
    """Raise NotAllowed for a name that cannot be an approver's, or is not among those who may approve (empty: anybody)."""
    if not approval.is_name(approver):
        raise NotAllowed(f"{approver!r} cannot be an approver's name: letters, digits and ._@+- only")
    if approvers and approver not in approvers and approver != approval.REHEARSAL:
        raise NotAllowed(f"{approver} is not among the approvers ({', '.join(sorted(approvers))})")


def check_key(one: Open, decision: str, approver: str, key: str) -> None:
    """Raise NotSigned before anything is sent, where a key is wanted and none is given, or none is there."""
    if decision == approval.PASS and not key and one.approvers.get(approver):
        raise NotSigned(f"the spec lists an SSH key for {approver}: this approval must be signed")
    if key and not places.expanded(key).is_file():
        raise NotSigned(f"there is no key file {key}")


def sign(folder: RunFolder, one: Open, approver: str, key: str) -> None:
    """Sign a pass with a private key file and put the signature into the store."""
    said = {"run": one.run, "stage": one.approved, "evidence": one.evidence, "decision": approval.PASS, "approver": approver}
    statement = msgspec.convert(said, approval.Statement)
    signed = signature.sign(approval.statement_bytes(statement), places.expanded(key))
    Store(folder.home.store).replace(approval.signature_key(one.run, one.approved, approver), signed)
