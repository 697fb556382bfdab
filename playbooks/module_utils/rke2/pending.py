"""The mark of a change that waits for a restart of RKE2; it outlives a run that was killed in between."""

from __future__ import annotations

import os
import secrets
import time
from typing import Any

from ansible.module_utils import waiting
from ansible.module_utils.rke2 import files

PATH = "/var/lib/rancher/.restart-owed"
START = "ExecMainStartTimestampMonotonic"
RUNS = ("start", "auto-restart", "auto-restart-queued")
"""States in which a job that systemd has for a unit has started its process, or waits for it to fail less often."""
BOOT = "/proc/sys/kernel/random/boot_id"
STARTED = ["systemctl", "show", "--property=%s,NRestarts,Job,SubState" % START, "rke2-server", "rke2-agent"]
JOB_SECONDS = 100
"""How long a restart that another run has asked systemd for may take until it starts: what runs is stopped first."""


def mark(path: str = PATH) -> None:
    """Remember, before anything is changed, that RKE2 must be restarted."""
    files.write(path, secrets.token_hex(8).encode(), 0o600)


def is_there(path: str = PATH) -> bool:
    """Whether RKE2 must be restarted."""
    return os.path.exists(path)


def seen(path: str = PATH) -> str:
    """Which change waits; empty where none does."""
    try:
        with open(path) as source:
            return source.read()
    except FileNotFoundError:
        return ""


def made(path: str = PATH) -> None:
    """The change that was remembered has been made: RKE2 knows it from its next start on, whoever sees that start."""
    if is_there(path):
        files.write(path, ("%s %s %f" % (seen(path).split()[0], _boot(), time.monotonic())).encode(), 0o600)


def restarted(module: Any, path: str = PATH, pause: float = waiting.FIRST) -> bool:
    """Whether RKE2 has started since the change was made, and not crashed: a run that was killed while it waited asks for no second
    restart, and one that comes after crashes for a new start, from which they are counted. What a killed run has asked systemd for
    is waited for; `pause` is the first one between two looks."""
    words, done = seen(path).split(), False
    for _ in waiting.rounds(JOB_SECONDS if len(words) == 3 else 0, pause):
        blocks = module.run_command(STARTED, handle_exceptions=True)[1].split("\n\n")
        units = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
        latest = max(_number(unit, START) / 1e6 for unit in units)
        crashed = any(_number(unit, "NRestarts") for unit in units)
        done = len(words) == 3 and not crashed and latest > (float(words[2]) if words[1] == _boot() else 0.0)
        if done or crashed or not any(_number(unit, "Job") and unit.get("SubState") not in RUNS for unit in units):
            break
    return done


def _number(unit: dict, name: str) -> int:
    value = unit.get(name, "")
    return int(value) if value.isdigit() else 0


def _boot() -> str:
    with open(BOOT) as source:
        return source.read().strip()


def clear(before: str, path: str = PATH) -> None:
    """RKE2 has been restarted and is ready, with all that was owed `before`; a change that came since still waits."""
    if is_there(path) and seen(path) == before:
        os.unlink(path)
