"""Check pods: the reports of a functional gate's pods, one JSON object each in their termination message."""

from typing import Any

from msgspec import Struct

CHECK_LABEL = "bringup/check"
"""Label on every pod of a check; its value is the check's name."""

POD_GROUP = "scheduling.k8s.io/group-name"
"""Annotation by which Volcano finds the PodGroup of a pod (https://github.com/volcano-sh/volcano)."""

CHECK_NAMESPACE = "bringup-check"
"""Namespace of checks whose stage has no namespace of its own."""


class CheckPod(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one pod of a check.

    `index` is its completion index (-1: not of an indexed Job). `report` is the JSON object in its termination message, empty if
    there is none yet. `reason` says why it waits, cannot be scheduled or failed. `annotations` are those that the probe selected.
    `events` are the newest Warning events about it as `Reason: message`, oldest first; they are read while it left no report.
    """

    name: str
    node: str = ""
    index: int = -1
    phase: str = ""
    reason: str = ""
    message: str = ""
    report: dict[str, Any] = {}
    annotations: dict[str, str] = {}
    events: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Return True if the pod has succeeded or failed, so that its report is final."""
        return self.phase in ("Succeeded", "Failed")
