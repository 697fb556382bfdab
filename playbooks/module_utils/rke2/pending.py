"""The mark of a change that waits for a restart of RKE2; it outlives a run that was killed in between."""

from __future__ import annotations

import os

from ansible.module_utils.rke2 import files

PATH = "/var/lib/rancher/.bringup-restart"


def mark() -> None:
    """Remember, before anything is changed, that RKE2 must be restarted."""
    os.makedirs(os.path.dirname(PATH), mode=0o755, exist_ok=True)
    files.touch(PATH)


def is_there() -> bool:
    """Whether RKE2 must be restarted."""
    return os.path.exists(PATH)


def clear() -> None:
    """RKE2 has been restarted and is ready."""
    if os.path.exists(PATH):
        os.unlink(PATH)
