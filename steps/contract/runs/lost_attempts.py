"""Attempts of a task that ended without the task's doing: an evicted, refused or lost pod, or an error of the engine.

A real Argo Workflows 4.1 reports most of them as `Failed`, not as `Error` (`inferFailedReason` in workflow/controller/operator.go).
The message is then the kubelet's, and the exit code is -1 where the container never ended, or that of a killed container. A task's
own failure always has a message of the form `main: REASON (exit code N)`.
"""

from msgspec import Struct

from steps.contract.exit import RETRY_EXPRESSION

OWN = "main: "
"""Beginning of the message that Argo gives to a node whose container itself ended with an error."""
GONE = "Unknown (exit"
"""Part of the message of a container whose end nobody saw: REASON is `Unknown` (after a reboot) or `ContainerStatusUnknown`."""
DEADLINE = "deadline"
"""Word in the kubelet's message about a pod that was active for too long; such a task hung, and would hang again."""

EXPRESSION = (
    f"{RETRY_EXPRESSION} || lastRetry.status == 'Error' || lastRetry.message contains '{GONE}'"
    f" || !(lastRetry.message startsWith '{OWN}' || lastRetry.message contains '{DEADLINE}')"
)
"""Condition (expr-lang) of every rendered template on which a failed attempt is followed by another one."""


class LostAttempt(Struct, frozen=True, kw_only=True):
    """An attempt that was lost: its task, the times in UTC seconds since the epoch, and what the engine says of it."""

    stage: str
    task: str
    shard: int
    started: float
    finished: float
    message: str


def is_lost(phase: str, message: str) -> bool:
    """Return True if an attempt that ended in `phase` with `message` ended without the task's doing; see `EXPRESSION`."""
    if phase == "Error" or GONE in message:
        return True
    return phase == "Failed" and not message.startswith(OWN) and DEADLINE not in message
