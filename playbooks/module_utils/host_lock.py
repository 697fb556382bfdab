"""Lock file by which only one of bringup's Ansible modules at a time changes a host.

A module may outlive its SSH session, so the next attempt can find the first one still running. The lock lies below /run and ends
with the process that holds it. Modules that only read take no lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import Any

from ansible.module_utils import polling

LOCK = "/run/bringup.lock"
SECONDS = 600
"""Seconds to wait for a module that holds the lock. The holder's own Ansible task has a time-out, most of which has passed when a
later play comes to this host.
"""
UMASK = 0o022
"""The umask that systemd gives to services. Under the umask of a hardened login (027, 077) the files that RKE2 writes are closed to
etcd's own user, and RKE2 waits for an etcd that never starts (rancher/rke2#6466).
"""
FIRST, MOST = 0.05, 1.0


class HostBusy(Exception):
    """Error: another module still holds the host's lock; the text names the module and since when."""


def hold_or_fail(module: Any, name: str) -> None:
    """Lock the host until this process ends, or fail the Ansible module with the name of the module that holds the lock."""
    try:
        hold(name)
    except HostBusy as busy:
        module.fail_json(msg=str(busy))


def hold(name: str, path: str = LOCK, seconds: float = SECONDS) -> None:
    """Lock the host, write this process's name into the lock file, and set the umask to 022. Raises HostBusy after `seconds`.

    A user other than root cannot open the lock file and cannot change the host either; the function then returns without a lock,
    and the setting result `root` of the node profile reports the missing rights.
    """
    os.umask(UMASK)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return  # not root, or /run is not writable
    for _ in polling.attempts(seconds, FIRST, MOST):
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            os.ftruncate(handle, 0)
            os.pwrite(handle, ("%s (pid %d) since %s" % (name, os.getpid(), now)).encode(), 0)
            return
    holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "somebody"
    os.close(handle)
    raise HostBusy("%s of an earlier play is still at work on this host: waited %d s for it" % (holder, seconds))
