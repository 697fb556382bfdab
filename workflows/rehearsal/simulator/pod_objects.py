"""Pod objects: creation from templates, and readers of their state; pure functions."""

from __future__ import annotations

import hashlib

from workflows.rehearsal.simulator.api_kinds import Obj, ObjectKind

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' alphabet for random name suffixes."""


def suffix(*parts: object) -> str:
    """Return five letters that look like Kubernetes' random suffix but depend on the parts only."""
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(5))


def from_template(template: Obj, name: str, kind: ObjectKind, owner: Obj, *, labels: Obj | None = None, node: str = "") -> Obj:
    """Return a pod owned by the controller `owner`, already bound if `node` is given."""
    meta = template.get("metadata") or {}
    pod: Obj = {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": (meta.get("labels") or {}) | (labels or {}),
            "ownerReferences": [kind.owner(owner)],
        },
        "spec": dict(template["spec"]),
    }
    if meta.get("annotations"):
        pod["metadata"]["annotations"] = dict(meta["annotations"])
    if node:
        pod["spec"]["nodeName"] = node
    return pod


def owner_uid(pod: Obj) -> str:
    """Return the UID of the controller that owns a pod, or an empty string."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((entry["uid"] for entry in owners if entry.get("controller")), "")


def phase(pod: Obj) -> str:
    """Return a pod's phase; `Pending` if no kubelet has reported yet."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def finished(pod: Obj) -> bool:
    """Return True if all containers have ended for good."""
    return phase(pod) in ("Succeeded", "Failed")


def ready(pod: Obj) -> bool:
    """Return True if the pod's Ready condition is true."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def restarts(pod: Obj) -> int:
    """Return the number of restarts of all containers together."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return sum(entry.get("restartCount", 0) for entry in statuses)


def node(pod: Obj) -> str:
    """Return the name of the pod's node, or an empty string."""
    return str(pod["spec"].get("nodeName") or "")
