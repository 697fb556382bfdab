"""Approvals: what an approver answers, and the bytes that the answer is about."""

import re

from msgspec import Struct

from steps.contract.canonical import canonical

HOLD, PASS, REJECT = "hold", "pass", "reject"
"""The three values of the parameter `decision`; a time-out or a bare resume leaves `hold`, which is no approval."""

NODE_PREFIX = "approve-"
"""Suspend nodes and templates of approvals are called `approve-STAGE`, the stage with dashes."""

ANNOUNCE, CONFIRM = "announce", "confirm"
TASKS = (ANNOUNCE, CONFIRM)
"""Tasks of an approval, recorded under the stage that waits: the one tells that it waits, the other checks the answer. No part of
what the stage itself does."""

NOBODY = "none"
REHEARSAL = "rehearsal"
"""The approver's name where a rehearsal opened the approval itself; valid in no other run."""

PARAMETERS = {"decision": HOLD, "approver": NOBODY, "evidence": NOBODY}
"""Output parameters of an approval node with their fail-closed defaults."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")


class Statement(Struct, frozen=True, kw_only=True):
    """What an approver signs: this run, this stage, this evidence, this decision."""

    run: str
    stage: str
    evidence: str
    decision: str
    approver: str


def statement_bytes(statement: Statement) -> bytes:
    """The bytes that are signed and verified."""
    return canonical(statement)


def is_name(text: str) -> bool:
    """Whether a text can be an approver's name: it goes through a workflow parameter, so no blanks, quotes or braces."""
    return text != NOBODY and bool(_NAME.fullmatch(text))


def signature_key(run: str, stage: str, approver: str) -> str:
    """Where an approver's signature lies in the store."""
    return f"runs/{run}/approvals/{stage}/{approver}.sig"


def webhook_file(stage: str) -> str:
    """Name of the secret file that holds the URL to which the approval before a stage is announced. The dot keeps it apart from the
    names that a spec gives its own secrets."""
    return f"{ANNOUNCE}.{stage}"


def ca_file(stage: str) -> str:
    """Name of the secret file of the certificates that alone may sign that of the webhook's server."""
    return f"{ANNOUNCE}_ca.{stage}"
