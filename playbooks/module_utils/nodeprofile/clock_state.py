"""Reader of the machine's clock and time service. A service that has just started gets time to find its servers."""

from __future__ import annotations

import ctypes
import struct
import time
from typing import Optional

from ansible.module_utils import polling
from ansible.module_utils.nodeprofile import systemd_services
from ansible.module_utils.nodeprofile.item import NodeAccess

TIMEX_SIZE, TIMEX_ERROR = 256, struct.calcsize("l") * 3
"""Room for the kernel's `struct timex`, and the offset of its fourth field `maxerror`, in microseconds. Fields are `long`."""

SMALL_OFFSET_SECONDS = 0.1
"""Clock offset that ends the wait for synchronization. A boot sets whole seconds; chrony corrects the rest within seconds."""
OWN_CLOCK = "7F7F0101"
"""chrony's name for the reference 127.127.1.1: it follows its own clock because `local` is configured (chronyc(1))."""


def read(node: NodeAccess, began: float, seconds: float) -> dict:
    """Return the fields of `Clock` in the os_prep contract: time, age of this module, name and state of the time service.

    `began` is the module's start by the monotonic clock. `seconds` is the longest wait for a running time service: chrony takes 4
    to 8 s after its start, more after a reboot.
    """
    service = systemd_services.running_time_service()
    state = wait_for_sync(node, seconds if service else 0)
    return {"epoch": time.time(), "after_seconds": time.monotonic() - began, "service": service, **state}


def wait_for_sync(node: NodeAccess, seconds: float, pause: float = polling.FIRST) -> dict:
    """Return `synchronized` and `offset_seconds` as soon as the clock is synchronized with a small offset, or after `seconds`.

    The dict is empty if neither chrony nor the kernel tells.
    """
    state: dict = {}
    for _ in polling.attempts(seconds, pause, max(pause, 1.0)):
        state = chrony(node) or (_kernel_clock() if systemd_services.has_systemd() else None) or {}
        if state.get("synchronized") and abs(state.get("offset_seconds", 0.0)) < SMALL_OFFSET_SECONDS:
            break
    return state


def chrony(node: NodeAccess) -> Optional[dict]:
    """Return `synchronized` and, if it is True, `offset_seconds` from chrony; None if chrony does not answer."""
    # of `chronyc -c tracking` field 0 is the reference, 4 the offset in seconds, 13 the leap status
    code, output, _ = node.run("chronyc", "-c", "-n", "tracking")
    fields = output.strip().split(",")
    if code != 0 or len(fields) < 14:
        return None
    good = fields[13] != "Not synchronised" and fields[0] != OWN_CLOCK
    return {"synchronized": good, "offset_seconds": float(fields[4])} if good else {"synchronized": False}


def _kernel_clock() -> Optional[dict]:
    """Return the kernel's `synchronized` by systemd's rule (maximum error below 16 s); None if the kernel does not tell.

    `timedatectl` is not asked because it would start a service.
    """
    timex = ctypes.create_string_buffer(TIMEX_SIZE)
    try:
        state = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None
    (greatest,) = struct.unpack_from("l", timex, TIMEX_ERROR)
    return {"synchronized": greatest < 16000000} if state >= 0 else None
