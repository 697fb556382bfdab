"""Lock of a product in a release tree: one publisher at a time holds it, as a lease that it renews while it works.

The lock file `incoming/.lock.N` is made by a hard link, which network file systems do atomically; advisory locks are not used. The
highest number counts. The file names the machine (boot id and process namespace), the process and its start. The holder empties the
file to give the lock back. Whoever wants the lock makes the next number, after an empty file or one whose holder is gone, and then
checks that no higher one is there. So no process ever removes a lock that another one could still hold.

On the same machine a dead holder is noticed at once. On another machine it counts as alive until it has not renewed the lock for
`timeouts.PUBLISH_LEASE`, by the clock of the file server. A holder that slept through its lease notices before it renames anything.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.clock import Clock
from steps.clients.releases.tree_operations import Claimed, MakeFolder, ReleaseLock, TreeTransport
from steps.contract import plain_text, release_layout
from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.errors import StepError, StoreBusy

T = TypeVar("T")

_TRIES = 5
"""Attempts to take a lock that changes between look and take."""
_LAPSED = 1.0
"""Seconds after the end of a lease at which a lock is surely seen to have lapsed: some machines give ages in whole seconds."""


class Holder(Struct, frozen=True, kw_only=True):
    """The process that holds a lock, as written in the lock file.

    `machine` is the boot id and the process namespace, because process numbers mean the same only within both.
    """

    token: str
    host: str
    machine: str
    process: int
    started: str
    since: float
    by: str = ""


def new_token() -> str:
    """Return a random name for one attempt to publish or roll back."""
    return secrets.token_hex(8)


def this_process(token: str, actor: str) -> Holder:
    """Return this process as the holder of a lock; `actor` names the run or command."""
    return Holder(
        token=token,
        host=socket.gethostname(),
        machine=_machine(),
        process=os.getpid(),
        started=_started(os.getpid()),
        since=round(time.time(), 3),
        by=actor,
    )


def is_gone(claimed: Claimed, lease: float = timeouts.PUBLISH_LEASE) -> bool:
    """Return True if the holder of a lock is gone.

    A holder on this machine is looked up; any other counts as gone once its lease (seconds) has expired.
    """
    expired = claimed.age > lease
    try:
        holder = msgspec.json.decode(claimed.holder, type=Holder)
    except UNREADABLE_JSON:
        return expired
    if holder.machine and holder.machine == _machine():
        return not holder.started or _started(holder.process) != holder.started
    return expired


@contextmanager
def hold_lease(transport: TreeTransport, product: str, token: str, actor: str) -> Iterator[None]:
    """Hold the lock of a product during the block. Raises StoreBusy if another process holds it."""
    folder = f"{product}/{release_layout.INCOMING}"
    transport.perform([MakeFolder(folder)])
    _take(transport, folder, token, actor)
    try:
        yield
    except BaseException:
        # The first error is the cause. A session that ended gave the lock back by itself.
        with suppress(StepError):
            transport.perform([ReleaseLock(folder, token)])
        raise
    transport.perform([ReleaseLock(folder, token)])


def retry_while_locked(publish: Callable[[], T], clock: Clock, seconds: float, say: Callable[[str], None]) -> T:
    """Return the result of `publish`; if a lock is in its way, wait until the lock has lapsed and call it again.

    An evicted pod, or one that lost its network, leaves a lock behind that no other machine can check. Raises StoreBusy if the
    holder renews the lock or is a process of this machine, and after `seconds`.
    """
    deadline, expected = clock.now() + seconds, float("inf")
    while True:
        try:
            return publish()
        except StoreBusy as busy:
            # More time left than was expected: the holder lives and has renewed its lock.
            if not busy.lapses or busy.lapses > expected + 2 * _LAPSED or clock.now() >= deadline:
                raise
            if expected == float("inf"):
                say(f"{busy}; waits for at most {busy.lapses:.0f} s, unless it renews its lock")
            pause = min(timeouts.PUBLISH_AGAIN, busy.lapses)
            expected = busy.lapses - pause
        clock.pause(pause, deadline)


def _take(transport: TreeTransport, folder: str, token: str, actor: str) -> None:
    holder, over = canonical(this_process(token, actor)), 0
    for _ in range(_TRIES):
        claimed = transport.claim(folder, token, holder, over)
        if claimed.had:
            return
        if not claimed.free and not is_gone(claimed):
            raise _busy(transport.where, folder, claimed)
        over = 0 if claimed.free else claimed.number
    why = claimed.why or "the lock changes hands all the time"
    raise StoreBusy(
        f"{transport.where}: cannot lock {folder}: {why}", hint="the file system must know hard links; see who else publishes"
    )


def _busy(where: str, folder: str, claimed: Claimed) -> StoreBusy:
    left, machine = max(timeouts.PUBLISH_LEASE - claimed.age, 0.0), ""
    try:
        holder = msgspec.json.decode(claimed.holder, type=Holder)
        machine = holder.machine
        who = plain_text.line(f"process {holder.process} on {holder.host}" + (f" ({holder.by})" if holder.by else ""))
    except UNREADABLE_JSON:
        who = "somebody"
    hint = f"wait for it; one that is gone loses its lock after {left:.0f} s more"
    busy = StoreBusy(f"{where}: {who} publishes into {folder.partition('/')[0]} right now", hint=hint)
    # waiting is of no use on this machine: `is_gone` saw that the holder is alive, whatever its lease says
    busy.lapses = 0.0 if machine and machine == _machine() else left + _LAPSED
    return busy


def _machine() -> str:
    """Return the boot id and the process namespace; empty if this system has no /proc that tells them."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(process: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if there is no such process, or only a zombie."""
    try:
        # the command's name in parentheses may hold any sign; `fields[18]` is field 22 of the file, the start time (proc(5))
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in ("Z", "X") else fields[18]
