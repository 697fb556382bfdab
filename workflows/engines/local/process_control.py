"""Processes by /proc and pidfd: start times, processes that bear the engine's mark, descendants, and reliable killing."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "BRINGUP_ENGINE_TOKEN"  # in the environment of every child and hence of its children
_PR_SET_CHILD_SUBREAPER = 36
_EXECVE_SECONDS = 1.0
"""Longest wait for a program to be loaded; a file system that hangs must not block the caller."""


def start_time(pid: int) -> int:
    """Return when the process began, in clock ticks since boot (field 22 of /proc/PID/stat); 0 if it is gone."""
    try:
        return int(_stat(pid)[19])
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on. Raises OSError."""
    # field 2, the command's name in parentheses, may contain spaces and parentheses itself
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()


def mark_of(pid: int) -> str:
    """Return the mark of a process; "" if it has none, is gone, or belongs to another user."""
    place = Path(f"/proc/{pid}/environ")
    try:
        environment = place.read_bytes()
        if not environment:  # between execve and the new program's start
            end = time.monotonic() + _EXECVE_SECONDS
            while _is_starting(pid) and time.monotonic() < end:
                os.sched_yield()
            environment = place.read_bytes()
    except OSError:
        return ""
    start = f"{MARK}=".encode()
    marks = [entry for entry in environment.split(b"\0") if entry.startswith(start)]
    return marks[0][len(start) :].decode(errors="replace") if marks else ""


def _is_starting(pid: int) -> bool:
    """Return True inside execve, where a process has no environment until the new program starts (field env_end)."""
    fields = _stat(pid)
    state, has_memory, env_end = fields[0], fields[20] != "0", fields[48]
    return has_memory and env_end == "0" and state not in "ZX"


def is_ending(pid: int) -> bool:
    """Return True if a process is gone or has released its memory, and with it its mark."""
    try:
        return _stat(pid)[20] == "0"
    except OSError:
        return True


def find_marked_processes(token: str) -> Iterator[int]:
    """Yield every living process whose mark begins with `token`."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid() and mark_of(int(entry.name)).startswith(token):
            yield int(entry.name)


def open_pidfd(pid: int) -> int | None:
    """Return a handle of the process, or None if it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def end_all(pids: list[int], grace: float) -> None:
    """Send SIGTERM, wait up to `grace` seconds, send SIGKILL; return when all are dead (or zombies that their parent must reap)."""
    with _handles(pids) as handles:
        alive = _signal_and_wait(handles, signal.SIGTERM, grace)
        _signal_and_wait(alive, signal.SIGKILL, None)


def kill_all(pids: list[int], seconds: float) -> None:
    """Send SIGKILL; return when all are dead, or after `seconds`."""
    with _handles(pids) as handles:
        _signal_and_wait(handles, signal.SIGKILL, seconds)


def await_all(pids: list[int], seconds: float) -> None:
    """Return when all are dead, or after `seconds`."""
    with _handles(pids) as handles:
        _wait(handles, seconds)


@contextlib.contextmanager
def _handles(pids: list[int]) -> Iterator[list[int]]:
    handles = [handle for pid in pids if (handle := open_pidfd(pid)) is not None]
    try:
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def _signal_and_wait(handles: list[int], number: signal.Signals, grace: float | None) -> list[int]:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, number)
    return _wait(handles, grace)


def _wait(handles: list[int], grace: float | None) -> list[int]:
    """Return the handles of processes that are still alive after `grace` seconds."""
    poll = select.poll()
    alive = set(handles)
    for handle in handles:
        poll.register(handle, select.POLLIN)
    end = None if grace is None else time.monotonic() + grace
    while alive:
        remaining = None if end is None else max(0.0, end - time.monotonic())
        ready = poll.poll(None if remaining is None else remaining * 1000)
        if not ready:
            break
        for handle, _ in ready:
            poll.unregister(handle)
            alive.discard(handle)
    return list(alive)


def kill_group(group: int) -> None:
    """Send SIGKILL to a process group that may be empty."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def children() -> list[int]:
    """Return the direct children of this process, adopted ones included."""
    pids: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            pids += [int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()]
    return pids


class Subreaper:
    """While one is held, orphaned descendants become children of this process instead of init's (if the kernel supports that)."""

    _lock = threading.Lock()
    _held = 0  # several engines may run in one process, each in its thread

    def __enter__(self) -> None:
        with self._lock:
            Subreaper._held += 1
            self._set(1)

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            Subreaper._held -= 1
            if Subreaper._held == 0:
                self._set(0)

    @staticmethod
    def _set(value: int) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, value, 0, 0, 0)
