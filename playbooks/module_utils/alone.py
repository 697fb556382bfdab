"""One module at a time changes a host: a module may outlive its SSH session, and the next attempt finds it still at work.

The lock lies below /run and goes with the process that holds it, however that ends. Modules that only read do without.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Any

from ansible.module_utils import waiting

LOCK = "/run/bringup.lock"
SECONDS = 600
"""How long another one is waited for: it is bounded by its task's time-out, which has mostly passed when a play comes again."""
UMASK = 0o022
"""As systemd gives it to services. With a hardened login's (027, 077) what RKE2 writes is closed to etcd's own user, and it waits
for an etcd that never starts (rancher/rke2 #6466)."""
FIRST, MOST = 0.05, 1.0


class Busy(Exception):
    """Another module is still at work; the text says which, and since when."""


def or_fail(module: Any, name: str) -> None:
    """Hold the host for as long as this process lives, or end the module as failed with who holds it."""
    try:
        hold(name)
    except Busy as busy:
        module.fail_json(msg=str(busy))


def hold(name: str, path: str = LOCK, seconds: float = SECONDS) -> None:
    """Lock the host and write down who did. Raises Busy. Who is not root changes nothing, and says so elsewhere.

    What is made from then on is not closed to others by the umask that hardened machines give root (027, 077).
    """
    os.umask(UMASK)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    for _ in waiting.rounds(seconds, FIRST, MOST):
        if _taken(handle):
            os.ftruncate(handle, 0)
            os.pwrite(handle, ("%s (pid %d) since %s" % (name, os.getpid(), _now())).encode(), 0)
            return
    holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "somebody"
    os.close(handle)
    raise Busy("%s of an earlier play is still at work on this host: waited %d s for it" % (holder, seconds))


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
