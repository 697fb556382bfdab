"""Approvals of a stage: the answer of an approver, the announcement that asks for it, and the bytes that a signature covers."""

import re
import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical

HOLD, PASS, REJECT = "hold", "pass", "reject"
"""Values of the parameter `decision`. A time-out or a bare resume leaves `hold`, which is no approval."""

NODE_PREFIX = "approve-"
"""Prefix of suspend nodes and templates of approvals: `approve-STAGE`, with dashes in the stage's name."""

ANNOUNCE, CONFIRM = "announce", "confirm"
TASKS = (ANNOUNCE, CONFIRM)
"""Tasks of an approval, recorded under the stage that waits: `announce` tells approvers, `confirm` checks their answer. Neither is
part of the stage's own work.
"""

NOBODY = "none"
"""Value of `approver` and `evidence` before anybody has answered."""
REHEARSAL = "rehearsal"
"""Name of the approver if a rehearsal opened the approval itself; not valid in other runs."""

PARAMETERS = {"decision": HOLD, "approver": NOBODY, "evidence": NOBODY}
"""Output parameters of an approval node with their fail-closed defaults."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


class Statement(Struct, frozen=True, kw_only=True):
    """The statement that an approver signs: run, stage, digest of the evidence, decision and the approver's name."""

    run: str
    stage: str
    evidence: str
    decision: str
    approver: str


def statement_bytes(statement: Statement) -> bytes:
    """Return the bytes of a statement that are signed and verified."""
    return canonical(statement)


def is_name(text: str) -> bool:
    """Return True if a text can be an approver's name: a workflow parameter carries it, so no blanks, quotes or braces."""
    return text != NOBODY and bool(_NAME.fullmatch(text))


def signature_key(run: str, stage: str, approver: str) -> str:
    """Return the store key of an approver's signature."""
    return f"runs/{run}/approvals/{stage}/{approver}.sig"


def webhook_file(stage: str) -> str:
    """Return the name of the secret file with the URL to which the approval before a stage is announced.

    The dot keeps the name apart from those that a spec gives to its own secrets.
    """
    return f"{ANNOUNCE}.{stage}"


def ca_file(stage: str) -> str:
    """Return the name of the secret file with the CA certificates that must have signed the webhook server's certificate."""
    return f"{ANNOUNCE}_ca.{stage}"


class Announcement(Struct, frozen=True, kw_only=True):
    """The JSON body of an announcement; chat systems show `text` alone.

    `since` is UTC, such as 2027-01-15T08:00:00Z. `evidence` is the digest of the evidence to approve, empty if the sender has not
    read it. `how` is the command that answers. `changes` says what is about to change, if that is known.
    """

    text: str
    run: str
    cluster: str
    stage: str
    since: str
    approvers: tuple[str, ...]
    evidence: str
    how: str
    changes: str = ""


def command(run: str, *, evidence: str = "", namespace: str | None = None) -> str:
    """Return the command by which an approver answers the approval for which `run` waits.

    `namespace` is that of a run on Argo, empty if unknown; the command then works on any machine that reaches the run. None means a
    run on the machine where the command is typed.
    """
    words = ["bringup approve", run, "--as NAME"]
    words += [f"--evidence {evidence}"] if evidence else []
    words += ["--engine argo"] if namespace is not None else []
    words += [f"--namespace {namespace}"] if namespace else []
    return " ".join(words)


def body(
    *, run: str, cluster: str, stage: str, since: float, approvers: Iterable[str], how: str, evidence: str = "", changes: str = ""
) -> bytes:
    """Return the announcement, as JSON, that `run` waits for an approval before `stage`.

    `since` is in seconds since the epoch, `how` a `command`.
    """
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
    about = f" ({changes})" if changes else ""
    text = f"{cluster}: run {run} waits for an approval before {stage} since {when}{about}: {how}"
    announcement = Announcement(
        text=text,
        run=run,
        cluster=cluster,
        stage=stage,
        since=when,
        approvers=tuple(approvers),
        evidence=evidence,
        how=how,
        changes=changes,
    )
    return msgspec.json.encode(announcement)
