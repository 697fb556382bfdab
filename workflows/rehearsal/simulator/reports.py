"""How check pods hand over long output: packed into their termination message, as their scripts do, or left in the log."""

from __future__ import annotations

import base64
import gzip

from workflows.rehearsal.simulator.kinds import Obj
from workflows.rehearsal.simulator.world import World

MOST = 3800
"""The scripts pack no more than this: a termination message holds 4,096 bytes."""


def packed(text: str) -> str:
    """Gzip in base64; empty where it would not fit."""
    found = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return found if len(found) <= MOST else ""


def keep_log(world: World, pod: Obj, text: str) -> None:
    """Write a pod's log whatever its node: in large fleets kubelets keep logs of sampled nodes only."""
    world.log(pod, pod["spec"]["containers"][0]["name"], text)


def environment(pod: Obj) -> dict[str, str]:
    """Plain environment variables of the pod's first container."""
    entries = pod["spec"]["containers"][0].get("env") or ()
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}
