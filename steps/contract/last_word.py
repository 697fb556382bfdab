"""A pod's last word: its record in one short line, which a kubelet keeps as the pod's termination message.

Argo repeats it in the message of a node that failed, so that its UI says why. It is no output parameter: nothing reads it but
people and the live view.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from steps.contract import plain
from steps.contract.evidence import Evidence
from steps.contract.verdict import Verdict

FILE = "last-word"
"""Where it is in the folder `out` on a machine that has no kubelet."""

KUBELET = "/dev/termination-log"
"""Where a kubelet takes it from, and Argo's executor leaves it alone."""

LONGEST = 1024
"""Bytes of one about a verdict; a kubelet keeps 4,096."""

ERROR = 160
"""Bytes of one about an error: an attempt that ends so may be repeated, and every failed one adds its message to the Workflow,
whose size is bounded (`workflows/engines/argo/size.py`)."""

_CUT = "… (bringup report tells all)"
_FORM = re.compile(r"(pass|fail|inconclusive|skipped|recorded)(?: (\d{1,9})/(\d{1,9}))?(?:: (.*))?", re.DOTALL)
_FAILED = re.compile(r"main: \w+ \(exit code \d+\): (.*)", re.DOTALL)
"""How Argo tells of a failed container (argo_conformance `command-not-found`)."""


class Said(Struct, frozen=True):
    """What is told of one record: the verdict's status, or `recorded` where it has none; its reason; of its nodes how many pass."""

    status: str
    reason: str = ""
    passed: int = 0
    nodes: int = 0

    @property
    def text(self) -> str:
        """As a line of a live view has it."""
        return f"{self.status}: {self.reason}" if self.reason else self.status


RECORDED = Said("recorded")
"""Of a record without a verdict."""


def of(verdict: Verdict | None) -> Said:
    """What is told of a record with this verdict."""
    return RECORDED if verdict is None else Said(verdict.status.value, verdict.reason, verdict.passed_nodes, len(verdict.nodes))


def written(record: Evidence, clean: Callable[[str], str]) -> str:
    """`fail 18/24: 18 of 24 GPU nodes pass, …`: without secrets (`clean`), cut where it is too long.

    Empty for the error of any shard but the first: a fanned-out task has as many as the fleet has shards."""
    if record.error and record.shard:
        return ""
    said = of(record.verdict)
    counted = f" {said.passed}/{said.nodes}" if said.nodes else ""
    text = f"{said.status}{counted}" + (f": {said.reason}" if said.reason else "")
    return _cut(clean(text), ERROR if record.error else LONGEST)


def failed(reason: str) -> str:
    """Of a pod that is no task, and has no record: why it ended without what it was for."""
    return _cut(f"fail: {plain.line(reason)}", LONGEST)


def _cut(text: str, most: int) -> str:
    data = text.encode()
    return text if len(data) <= most else data[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT


def read(text: str) -> Said | None:
    """What `written` wrote, its reason as one line; None for anything else that a pod may have left."""
    found = _FORM.fullmatch(text)
    return Said(found[1], plain.line(found[4] or ""), int(found[2] or 0), int(found[3] or 0)) if found else None


def of_node(message: str) -> Said | None:
    """The last word in the message of a node that failed on Argo; None where there is none."""
    found = _FAILED.fullmatch(message)
    return read(found[1]) if found else None
