"""Kills at random points: of the engine, which is then told to go on, and of the SSH sessions of one host."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hostlab import network
from hostlab.host import Host

FIRST_SECONDS = 0.1
END_SECONDS = 240
"""A run that was disturbed, and then is left alone."""
GATE = 65
"""The exit code of a run whose gate has failed."""
ROUNDS = 4
"""Most attempts of a test: if the work ended before the last kill, the next attempt halves the time between kills."""


def chance() -> random.Random:
    """Chance that can be had again: `BRINGUP_SEED` says its seed, which is printed."""
    seed = int(os.environ.get("BRINGUP_SEED") or time.time_ns() % 1_000_000)
    print(f"seed {seed} (BRINGUP_SEED)")
    return random.Random(seed)


def kill_session(host: Host) -> bool:
    """End the SSH sessions of one host with SIGKILL, as a crash of its SSH server does; whether there were any."""
    found = False
    for pid in network.processes(host.name):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sshd: root"):
                os.kill(pid, signal.SIGKILL)
                found = True
    return found


def disturb(
    start: Callable[[], subprocess.Popen[str]], hosts: Sequence[Host], chance: random.Random, longest: float, most: int
) -> list[str]:
    """One command to its end, with at most so many kills on its way, each within `longest` seconds after the one before; which they
    were: fewer where the command came to its end before, so the caller counts them. `start` begins it, or goes on where it was
    begun: after a kill of the engine, and where a host has lost so many sessions that it counts as unreachable."""
    kills: list[str] = []
    lost, process = False, start()
    try:
        while True:
            code = _ended(process, chance.uniform(FIRST_SECONDS, longest) if len(kills) < most else END_SECONDS)
            victim = chance.choice([None, *hosts])
            if code == 0:
                return kills
            if code is not None:
                assert (code, lost) == (GATE, True), (code, kills)
                lost, process = False, start()
            elif victim is None:
                process.kill()
                process.wait()
                kills.append("engine")
                process = start()  # which may find that the host it had lost was given up before the kill
            elif kill_session(victim):
                kills.append(victim.name)
                lost = True
    finally:
        process.kill()
        process.wait()


def _ended(process: subprocess.Popen[str], seconds: float) -> int | None:
    """The exit code; None when it runs on."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    assert seconds < END_SECONDS, "a command that nothing disturbs any more does not end"
    return None
