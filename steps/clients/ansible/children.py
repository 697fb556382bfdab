"""Ends every process that a play left behind.

ansible-runner kills its process group only; Ansible's workers and SSH's master connections are sessions of their own. Workers carry
the play's mark in their environment; a master writes its title over that, and the title names its socket in the play's folder.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "BRINGUP_PLAY"
"""Environment variable with a value that no other play has."""

PROC = Path("/proc")
END_SECONDS = 5.0
"""A killed process is gone within milliseconds; longer means that it hangs in the kernel, and nobody can end it."""


def end(mark: str, folder: Path) -> int:
    """Kill all processes of this mark or folder, and those that they start meanwhile; how many there were. Linux only."""
    ended: set[int] = set()
    until = time.monotonic() + END_SECONDS
    while (found := list(_of_play(f"{MARK}={mark}".encode(), f"{folder}/".encode()))) and time.monotonic() < until:
        for pid in found:
            _kill(pid)
        ended.update(found)
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
                continue  # ended meanwhile, or another user's
            if mark in environment.split(b"\0") or (title.startswith(b"ssh: ") and folder in title):
                yield int(process.name)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
    except (ProcessLookupError, ChildProcessError):
        return
