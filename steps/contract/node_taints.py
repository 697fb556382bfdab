"""Taints of nodes in the form that a spec and kubectl write (`key=value:effect`), and whether tolerations match them."""

from collections.abc import Iterable, Mapping
from typing import Any

SUNK_LOCK = "sunk.coreweave.com/lock"
"""Key of the NoExecute taint that SUNK sets on a node while Slurm uses it; it evicts pods without a toleration.

Source: https://docs.coreweave.com/products/sunk
"""


def from_text(text: str) -> dict[str, str]:
    """Return a taint written as `key=value:effect` or `key:effect` in the form of a Kubernetes object."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def tolerates(tolerations: Iterable[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    """Return True if one of a pod's tolerations matches a node's taint.

    See https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.
    """
    for entry in tolerations:
        if entry.get("effect") not in (None, "", taint["effect"]):
            continue
        if entry.get("operator", "Equal") == "Exists":
            if not entry.get("key") or entry["key"] == taint["key"]:
                return True
        elif entry.get("key") == taint["key"] and (entry.get("value") or "") == (taint.get("value") or ""):
            return True
    return False
