"""Kills every process that a play left behind.

ansible-runner kills its process group only, but Ansible's workers and SSH's master connections are sessions of their own. Workers
carry the variable MARK in their environment. A master overwrites its environment with its title, which names its socket in the
play's folder.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "BRINGUP_PLAY"
"""Environment variable of a play's processes; its value is unique to the play."""

PROC = Path("/proc")
END_SECONDS = 5.0
"""Limit in seconds for killed processes to end, which normally takes milliseconds; one that takes longer hangs in the kernel."""


def end(mark: str, folder: Path) -> int:
    """Kill all processes of a play, and those that they start meanwhile; return their number. Linux only.

    `mark` is the value of MARK in their environment, `folder` the play's folder, which titles of SSH masters name.
    """
    ended: set[int] = set()
    until = time.monotonic() + END_SECONDS
    while (pids := list(_of_play(f"{MARK}={mark}".encode(), f"{folder}/".encode()))) and time.monotonic() < until:
        for pid in pids:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        ended.update(pids)
        time.sleep(0.005)
    return len(ended)


def _of_play(mark: bytes, folder: bytes) -> Iterator[int]:
    if not PROC.is_dir():
        return
    for process in PROC.iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                environment, title = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
            except OSError:
                continue  # the process has ended, or is another user's
            # workers carry the mark; SSH masters overwrite their environment with a title that names the socket
            if mark in environment.split(b"\0") or (title.startswith(b"ssh: ") and folder in title):
                yield int(process.name)
