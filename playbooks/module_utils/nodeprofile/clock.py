"""The clock: its time, and what the time service says of it; one that has just started is given time to find its servers."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Optional

from ansible.module_utils import waiting
from ansible.module_utils.nodeprofile import services
from ansible.module_utils.nodeprofile.item import Node

TIMEX_SIZE, TIMEX_ERROR = 256, struct.calcsize("l") * 3
"""Room for the kernel's `struct timex`; its `maxerror`, in microseconds, is the fourth field, each as long as a `long`."""

NEAR_SECONDS = 0.1
"""An offset that nobody waits for any longer: a boot takes the time from a clock that counts whole seconds, and chrony needs some
seconds more to make up for what that lacks."""
ITSELF = "7F7F0101"
"""The reference 127.127.1.1: synchronized to nobody, with `local` at work (chronyc(1))."""


def read(node: Node, began: float, seconds: float) -> dict:
    """`Clock` of `steps/contract/stages/os_prep.py`; `began` is when the module did, by the monotonic clock, `seconds` how long a
    time service that runs is waited for: chrony takes 4 to 8 s after its start, a reboot's network some more."""
    service = services.running_time_service()
    said = synchronized(node, seconds if service else 0)
    return {"epoch": time.time(), "after_seconds": time.monotonic() - began, "service": service, **said}


def synchronized(node: Node, seconds: float, pause: float = waiting.FIRST) -> dict:
    """What the time service says, as soon as it says yes and the offset is small, else after these seconds; empty where nobody says
    anything."""
    said: dict = {}
    for _ in waiting.rounds(seconds, pause, max(pause, 1.0)):
        said = chrony(node) or (_kernel() if services.has_systemd() else None) or {}
        if said.get("synchronized") and abs(said.get("offset_seconds", 0.0)) < NEAR_SECONDS:
            break
    return said


def chrony(node: Node) -> Optional[dict]:
    """`chronyc -c tracking`: field 0 is whom it follows, 4 the offset of the system time in seconds, the last one the leap status.
    With `local` in its configuration, chrony calls its own clock good and without offset where no server answers."""
    code, output, _ = node.run("chronyc", "-c", "-n", "tracking")
    fields = output.strip().split(",")
    if code != 0 or len(fields) < 14:
        return None
    good = fields[13] != "Not synchronised" and fields[0] != ITSELF
    return {"synchronized": good, "offset_seconds": float(fields[4])} if good else {"synchronized": False}


def _kernel() -> Optional[dict]:
    """What `timedatectl` shows as NTPSynchronized, by systemd's rule: the kernel's greatest error is below 16 s. To ask systemd
    would start a service of its own for it."""
    timex = ctypes.create_string_buffer(TIMEX_SIZE)
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None
    (greatest,) = struct.unpack_from("l", timex, TIMEX_ERROR)
    return {"synchronized": greatest < 16000000} if state >= 0 else None
