"""Last word of a pod: its record in one short line, which a kubelet keeps as the pod's termination message.

Argo repeats the line in the message of a failed node, so its UI shows the reason. It is no output parameter: only people and the
live view read it.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from steps.contract import plain_text
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Verb
from steps.contract.verdict import Verdict

FILE = "last-word"
"""Name of the last word's file in the folder `out` on a machine without kubelet."""

KUBELET = "/dev/termination-log"
"""File from which a kubelet takes the termination message; Argo's executor leaves it alone."""

LONGEST = 1024
"""Limit in bytes of a last word about a verdict; a kubelet keeps 4,096."""

ERROR = 160
"""Limit in bytes of a last word about an error.

An attempt that ends with an error may be repeated, and each failed one adds its message to the Workflow, whose size is limited
(`workflows/engines/argo/submission.py`).
"""

_CUT = "… (bringup report tells all)"
_FORM = re.compile(r"(pass|fail|inconclusive|skipped|recorded)(?: (\d{1,9})/(\d{1,9}))?(?:: (.*))?", re.DOTALL)
_FAILED = re.compile(r"main: \w+ \(exit code \d+\): (.*)", re.DOTALL)
"""Form of the message that Argo gives to a failed node of a Workflow; the group is what the container left as its last word."""


class Said(Struct, frozen=True):
    """Summary of one record in a last word: status (`recorded` without verdict), reason, and numbers of passed and judged nodes."""

    status: str
    reason: str = ""
    passed: int = 0
    nodes: int = 0

    @property
    def text(self) -> str:
        """Return the summary as a line of a live view."""
        return f"{self.status}: {self.reason}" if self.reason else self.status


RECORDED = Said("recorded")
"""Summary of a record without a verdict."""


def summary_of(verdict: Verdict | None) -> Said:
    """Return the summary of a record with this verdict."""
    return RECORDED if verdict is None else Said(verdict.status.value, verdict.reason, verdict.passed_nodes, len(verdict.nodes))


def render_last_word(record: Evidence, clean: Callable[[str], str]) -> str:
    """Return the last word of a record: `fail 18/24: 18 of 24 GPU nodes pass, …`, redacted by `clean` and truncated if too long.

    Returns an empty text for the error of any shard but the first, because a task may have one for each shard of the fleet.
    Verdicts on builds are as short as errors, because a stack may have a thousand builds, each of which ends with 65 if it failed.
    """
    # each message is added to the Workflow, whose size is limited
    if record.error and record.shard:
        return ""
    is_short = bool(record.error) or (record.verb == Verb.BUILD and record.shard > 0)
    summary = summary_of(record.verdict)
    counted = f" {summary.passed}/{summary.nodes}" if summary.nodes else ""
    text = f"{summary.status}{counted}" + (f": {summary.reason}" if summary.reason else "")
    return _cut(clean(text), ERROR if is_short else LONGEST)


def render_failure(reason: str) -> str:
    """Return the last word of a pod that runs no task and failed for `reason`."""
    return _cut(f"fail: {plain_text.line(reason)}", LONGEST)


def _cut(text: str, most: int) -> str:
    data = text.encode()
    return text if len(data) <= most else data[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT


def read(text: str) -> Said | None:
    """Return the summary in a last word that `render_last_word` made; None for any other text that a pod may have left."""
    match = _FORM.fullmatch(text)
    return Said(match[1], plain_text.line(match[4] or ""), int(match[2] or 0), int(match[3] or 0)) if match else None


def of_node(message: str) -> Said | None:
    """Return the summary in the message that Argo gives to a failed node of a Workflow; None if it holds no last word."""
    match = _FAILED.fullmatch(message)
    return read(match[1]) if match else None
