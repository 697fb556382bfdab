"""Check pods: what the pods of a functional gate report, one JSON object each in their termination message."""

from typing import Any

from msgspec import Struct

CHECK_LABEL = "bringup/check"
"""Label of every pod of a check, with the check's name."""

CHECK_NAMESPACE = "bringup-check"
"""Where checks run, unless their stage has a namespace of its own."""


class CheckPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a check.

    `index` is its completion index (-1: not of an indexed Job). `report` is the JSON object of its termination message, empty
    while there is none; `reason` says why it waits, cannot be scheduled or ended badly; `annotations` are those asked for.
    """

    name: str
    node: str = ""
    index: int = -1
    phase: str = ""
    reason: str = ""
    message: str = ""
    report: dict[str, Any] = {}
    annotations: dict[str, str] = {}

    @property
    def ended(self) -> bool:
        """Whether waiting cannot change what it says."""
        return self.phase in ("Succeeded", "Failed")
