"""JSON merge patch (RFC 7386)."""

from typing import Any


def merge(target: Any, patch: Any) -> Any:
    """`target` with `patch` merged in: objects by key, null deletes, everything else replaces. Neither argument changes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged
