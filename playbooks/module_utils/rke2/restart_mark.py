"""Marker file of a change that needs a restart of RKE2; it survives a run that is killed before that restart."""

from __future__ import annotations

import os
import secrets
import time
from typing import Any

from ansible.module_utils import atomic_files, polling

PATH = "/var/lib/rancher/.restart-owed"
START = "ExecMainStartTimestampMonotonic"
STARTING_STATES = ("start", "auto-restart", "auto-restart-queued")
"""Substates of a unit in which systemd's job has started the process or waits to start it again."""
BOOT = "/proc/sys/kernel/random/boot_id"
SHOW_UNITS = ["systemctl", "show", "--property=%s,NRestarts,Job,SubState" % START, "rke2-server", "rke2-agent"]
JOB_SECONDS = 100
"""Longest wait in seconds until a restart begins that another run has requested; systemd stops the running process first."""


def mark(path: str = PATH) -> None:
    """Write the marker file, with a new random id, before a change that needs a restart of RKE2."""
    atomic_files.write(path, secrets.token_hex(8).encode(), 0o600)


def is_pending(path: str = PATH) -> bool:
    """Return True if the marker file exists: RKE2 must be restarted."""
    return os.path.exists(path)


def read(path: str = PATH) -> str:
    """Return the marker file's text, whose first word identifies one change; empty if there is no marker."""
    try:
        with open(path) as source:
            return source.read()
    except FileNotFoundError:
        return ""


def mark_made(path: str = PATH) -> None:
    """Add boot id and monotonic time to the marker file once the change is complete: any later start of RKE2 includes it."""
    if is_pending(path):
        atomic_files.write(path, ("%s %s %f" % (read(path).split()[0], _boot(), time.monotonic())).encode(), 0o600)


def has_restarted(module: Any, path: str = PATH, pause: float = polling.FIRST) -> bool:
    """Return True if RKE2 has started since the marked change and not crashed. `pause` is the first pause in seconds between looks.

    A run that was killed while waiting thus needs no second restart. After crashes the answer is False, because a new start resets
    their count. A restart that a killed run has requested is waited for, up to JOB_SECONDS.
    """
    words, done = read(path).split(), False
    for _ in polling.attempts(JOB_SECONDS if len(words) == 3 else 0, pause):
        blocks = module.run_command(SHOW_UNITS, handle_exceptions=True)[1].split("\n\n")
        units = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
        latest = max(_number(unit, START) / 1e6 for unit in units)
        crashed = any(_number(unit, "NRestarts") for unit in units)
        # one word before `mark_made`, three after it; monotonic time begins anew with each boot, where any start is later
        done = len(words) == 3 and not crashed and latest > (float(words[2]) if words[1] == _boot() else 0.0)
        if done or crashed or not any(_number(unit, "Job") and unit.get("SubState") not in STARTING_STATES for unit in units):
            break
    return done


def _number(unit: dict, name: str) -> int:
    value = unit.get(name, "")
    return int(value) if value.isdigit() else 0


def _boot() -> str:
    with open(BOOT) as source:
        return source.read().strip()


def clear(before: str, path: str = PATH) -> None:
    """Remove the marker file after a restart if its text is still `before`; the marker of a later change stays."""
    if is_pending(path) and read(path) == before:
        os.unlink(path)
