"""The mark of a change that waits for a restart of RKE2; it outlives a run that was killed in between."""

from __future__ import annotations

import os
import secrets
import time
from typing import Any

from ansible.module_utils.rke2 import files

PATH = "/var/lib/rancher/.restart-owed"
BOOT = "/proc/sys/kernel/random/boot_id"
STARTED = ["systemctl", "show", "--property=ExecMainStartTimestampMonotonic,NRestarts", "rke2-server", "rke2-agent"]


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


def restarted(module: Any, path: str = PATH) -> bool:
    """Whether RKE2 has started since the change was made, and not crashed: a run that was killed while it waited asks for no second
    restart, and one that comes after crashes for a new start, from which they are counted."""
    words = seen(path).split()
    rows = [line.partition("=")[::2] for line in module.run_command(STARTED, handle_exceptions=True)[1].splitlines()]
    crashed = any(name == "NRestarts" and value not in ("", "0") for name, value in rows)
    latest = max([int(value) / 1e6 for name, value in rows if name != "NRestarts" and value.isdigit()], default=0.0)
    return len(words) == 3 and not crashed and latest > (float(words[2]) if words[1] == _boot() else 0.0)


def _boot() -> str:
    with open(BOOT) as source:
        return source.read().strip()


def clear(before: str, path: str = PATH) -> None:
    """RKE2 has been restarted and is ready, with all that was owed `before`; a change that came since still waits."""
    if is_there(path) and seen(path) == before:
        os.unlink(path)
