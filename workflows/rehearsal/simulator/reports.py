"""How check pods hand over long output: packed into their termination message, as their scripts do, or left in the log."""

from __future__ import annotations

import base64
import gzip

from workflows.rehearsal.simulator.kinds import Obj
from workflows.rehearsal.simulator.world import World

MOST = 3800
"""The scripts pack no more than this: a termination message holds 4,096 bytes."""


PIECE = 2_000_000
"""Characters of one write: API servers take no more than 3 MiB in a request."""


def packed(text: str) -> str:
    """Gzip in base64; empty where it would not fit."""
    found = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return found if len(found) <= MOST else ""


def keep_log(world: World, pod: Obj, text: str) -> None:
    """Write a long log in pieces, since a request has its limit; for programs that leave `Exit.log` empty."""
    for start in range(0, len(text), PIECE):
        world.log(pod, pod["spec"]["containers"][0]["name"], text[start : start + PIECE])


def environment(pod: Obj) -> dict[str, str]:
    """Plain environment variables of the pod's first container."""
    entries = pod["spec"]["containers"][0].get("env") or ()
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}
