"""Pods as data: made from templates, and read for their state; pure functions."""

from __future__ import annotations

import hashlib

from workflows.rehearsal.simulator.kinds import Kind, Obj

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' own alphabet for random name suffixes."""


def suffix(*parts: object) -> str:
    """Five letters that look like Kubernetes' random suffix but depend on the parts only."""
    number = int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big")
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(5))


def from_template(template: Obj, name: str, kind: Kind, owner: Obj, *, labels: Obj | None = None, node: str = "") -> Obj:
    """A pod of a controller `owner`, bound at once when `node` is given."""
    meta = template.get("metadata") or {}
    made: Obj = {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": (meta.get("labels") or {}) | (labels or {}),
            "ownerReferences": [kind.owner(owner)],
        },
        "spec": dict(template["spec"]),
    }
    if meta.get("annotations"):
        made["metadata"]["annotations"] = dict(meta["annotations"])
    if node:
        made["spec"]["nodeName"] = node
    return made


def owner_uid(pod: Obj) -> str:
    """UID of the controller that owns a pod; empty when none does."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((entry["uid"] for entry in owners if entry.get("controller")), "")


def phase(pod: Obj) -> str:
    """`Pending` when nothing is known yet."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def finished(pod: Obj) -> bool:
    """Whether all its containers ended for good."""
    return phase(pod) in ("Succeeded", "Failed")


def ready(pod: Obj) -> bool:
    """Whether its Ready condition is true."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def restarts(pod: Obj) -> int:
    """Restarts of all its containers together."""
    statuses = pod.get("status", {}).get("containerStatuses") or ()
    return sum(entry.get("restartCount", 0) for entry in statuses)


def node(pod: Obj) -> str:
    """Name of the node it is bound to; empty when none."""
    return str(pod["spec"].get("nodeName") or "")
