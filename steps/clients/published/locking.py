"""One publisher at a time: who holds a tree's lock, and whether that one is gone."""

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.clock import Clock
from steps.clients.published.operations import Claimed, Folder, Release, Transport
from steps.contract import plain
from steps.contract.canonical import canonical
from steps.contract.image import published
from steps.contract.stages.image_publish import Published
from steps.errors import StepError, StoreBusy

_TRIES = 5
"""Looks at a lock that changes between look and take."""


_LAPSED = 1.0
"""Seconds behind its lease at which a lock is surely seen to have lapsed: ages are told in whole ones by some machines."""


class Holder(Struct, frozen=True, kw_only=True):
    """Who has the lock: `machine` is the boot id and the process namespace, so that a process number means the same there."""

    token: str
    host: str
    machine: str
    process: int
    started: str
    since: float
    by: str = ""


def new_token() -> str:
    """A name that nobody else has."""
    return secrets.token_hex(8)


def myself(token: str, by: str) -> Holder:
    """This process."""
    return Holder(
        token=token,
        host=socket.gethostname(),
        machine=_machine(),
        process=os.getpid(),
        started=_started(os.getpid()),
        since=round(time.time(), 3),
        by=by,
    )


def gone(claimed: Claimed) -> bool:
    """Whether the holder of a lock is gone; of one that nobody can read nobody knows more than that it is not renewed."""
    expired = claimed.age > timeouts.PUBLISH_LEASE
    try:
        holder = msgspec.json.decode(claimed.holder, type=Holder)
    except msgspec.MsgspecError:
        return expired
    if holder.machine and holder.machine == _machine():
        return not holder.started or _started(holder.process) != holder.started
    return expired


@contextmanager
def locked(transport: Transport, image: str, token: str, by: str) -> Iterator[None]:
    """Hold the lock of an image's tree. Raises StoreBusy where somebody else is at work in it."""
    folder = f"{image}/{published.INCOMING}"
    transport.perform([Folder(folder)])
    _take(transport, folder, token, by)
    try:
        yield
    except BaseException:
        with suppress(StepError):  # the error that comes is the cause; a session that ended gave the lock back itself
            transport.perform([Release(folder, token)])
        raise
    transport.perform([Release(folder, token)])


def patiently(publish: Callable[[], Published], clock: Clock, seconds: float, say: Callable[[str], None]) -> Published:
    """Publish, where a lock is in the way of somebody on another machine as soon as that has lapsed: an evicted pod, or one whose
    network went away, leaves it behind, and nobody can ask whether it lives. Raises StoreBusy where its holder renews it, where it
    is one of this machine, and after `seconds`."""
    deadline, expected = clock.now() + seconds, float("inf")
    while True:
        try:
            return publish()
        except StoreBusy as busy:
            if not busy.lapses or busy.lapses > expected + 2 * _LAPSED or clock.now() >= deadline:
                raise
            if expected == float("inf"):
                say(f"{busy}; waits for at most {busy.lapses:.0f} s, unless it renews its lock")
            pause = min(timeouts.PUBLISH_AGAIN, busy.lapses)
            expected = busy.lapses - pause
        clock.pause(pause, deadline)


def _take(transport: Transport, folder: str, token: str, by: str) -> None:
    holder, over = canonical(myself(token, by)), 0
    for _ in range(_TRIES):
        claimed = transport.claim(folder, token, holder, over)
        if claimed.had:
            return
        if not claimed.free and not gone(claimed):
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
        who = plain.line(f"process {holder.process} on {holder.host}" + (f" ({holder.by})" if holder.by else ""))
    except msgspec.MsgspecError:
        who = "somebody"
    hint = f"wait for it; one that is gone loses its lock after {left:.0f} s more"
    busy = StoreBusy(f"{where}: {who} publishes into {folder.partition('/')[0]} right now", hint=hint)
    busy.lapses = 0.0 if machine and machine == _machine() else left + _LAPSED
    return busy


def _machine() -> str:
    """The running system and its process namespace; empty where this system tells neither."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + " " + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(process: int) -> str:
    """When a process began, in the system's ticks; empty where there is none, or only a dead one that nobody has waited for."""
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in ("Z", "X") else fields[18]
