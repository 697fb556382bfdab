"""Find and end processes by /proc and pidfd: start times, descendants, and processes with the engine's token.

Every child has the token in the environment variable `MARK`, which its own children inherit.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MARK = "BRINGUP_ENGINE_TOKEN"  # in the environment of every child and hence of its children
_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_EXECVE_SECONDS = 1.0
"""Longest wait in seconds until a process has loaded its program; a file system that hangs must not block the caller."""


def limit(pid: int, memory: int) -> None:
    """Forbid a process and its children core dumps, which may hold secrets, and more than `memory` bytes of data each; 0: no limit.

    The limit of a pod is for all its processes together. RLIMIT_DATA counts the memory that a process may write, not libraries or
    reserved addresses, so that it is the nearest to it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or has another user by a setuid program
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        hard = resource.prlimit(pid, resource.RLIMIT_DATA)[1]
        if memory and (hard == resource.RLIM_INFINITY or memory < hard):
            resource.prlimit(pid, resource.RLIMIT_DATA, (memory, memory))


def start_time(pid: int) -> int:
    """Return when the process started, in clock ticks since boot (field 22 of /proc/PID/stat); 0 if it is gone."""
    try:
        return int(_stat(pid)[19])
    except OSError:
        return 0


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on. Raises OSError if the process is gone."""
    # field 2, the command's name in parentheses, may contain spaces and parentheses itself
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()


def mark_of(pid: int) -> str:
    """Return the value of `MARK` in a process's environment; "" if it has none, is gone, or belongs to another user."""
    end = time.monotonic() + _EXECVE_SECONDS
    try:
        mark, starting = _mark(pid), True
        while not mark and starting and time.monotonic() < end:
            os.sched_yield()
            starting = _is_starting(pid)  # before another look: its program may start between the two
            mark = _mark(pid)
    except OSError:
        return ""
    return mark


def _mark(pid: int) -> str:
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    start = f"{MARK}=".encode()
    marks = [entry for entry in environment.split(b"\0") if entry.startswith(start)]
    return marks[0][len(start) :].decode(errors="replace") if marks else ""


def _is_starting(pid: int) -> bool:
    """Return True if the process is before or inside execve, so that its environment is not yet the one of its program.

    vfork ends for the parent while the child still has its parent's memory, and hence environment; afterwards it has none until the
    new program starts (field env_end).
    """
    fields = _stat(pid)
    state, has_memory, env_end = fields[0], fields[20] != "0", fields[48]
    if not has_memory or state in "ZX":
        return False
    return env_end == "0" or (_age(fields) < _EXECVE_SECONDS and _memory(fields) == _memory(_stat(int(fields[1]))))


def _age(fields: Sequence[str]) -> float:
    """Return the seconds since a process was made, by the fields of its /proc/PID/stat."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS


def _memory(fields: Sequence[str]) -> tuple[str, ...]:
    """Return where code, stack and environment of a process are: with random addresses no two programs have the same."""
    return (fields[23], fields[25], fields[47], fields[48])


def is_ending(pid: int) -> bool:
    """Return True if a process is gone or has released its memory, and with it its environment."""
    try:
        return _stat(pid)[20] == "0"
    except OSError:
        return True


def find_marked_processes(token: str) -> Iterator[int]:
    """Yield the id of every other living process whose `MARK` begins with `token`."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid() and mark_of(int(entry.name)).startswith(token):
            yield int(entry.name)


def open_pidfd(pid: int) -> int | None:
    """Return a pidfd of the process, or None if the process is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def end_all(pids: list[int], grace: float) -> None:
    """Send SIGTERM to the processes, wait up to `grace` seconds, send SIGKILL, and wait without limit until all are dead.

    A zombie counts as dead, since only its parent can reap it.
    """
    with _handles(pids) as handles:
        alive = _signal_and_wait(handles, signal.SIGTERM, grace)
        _signal_and_wait(alive, signal.SIGKILL, None)


def kill_all(pids: list[int], seconds: float) -> None:
    """Send SIGKILL to the processes, and wait until all are dead, at most `seconds`."""
    with _handles(pids) as handles:
        _signal_and_wait(handles, signal.SIGKILL, seconds)


def await_all(pids: list[int], seconds: float) -> None:
    """Wait until all these processes are dead, at most `seconds`."""
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
    """Wait up to `grace` seconds (None: without limit) and return the pidfds of processes that are still alive."""
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
    """Send SIGKILL to all processes of a process group; an empty group is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def children() -> list[int]:
    """Return the ids of this process's direct children, including adopted ones."""
    pids: list[int] = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            pids += [int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split()]
    return pids


class Subreaper:
    """Context in which orphaned descendants become children of this process instead of init's, if the kernel supports that."""

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
