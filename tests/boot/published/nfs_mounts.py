"""Mounts for a moment of the stand-in for a network file system, and what each is to do otherwise than a disk would."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.nodeimage.netboot import parent_death
from tests.hosts.hostlab.waiting import until

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("nfs_stand_in.py")
KIND = "nfs_stand_in"
"""Type of the stand-in's mounts in the kernel's mount table, behind `fuse.`."""
SECONDS = 60.0
SILLY = ".nfs"
"""Begins the name that a removed file has as long as it is open."""


class Odd(Struct, frozen=True):
    """An answer that is not the true one: to the call of this name about a path with these words in it, so many times. `done`: it
    did what it was asked. `removed`: what it is about went just then, as another client removed it."""

    call: str
    path: str
    answer: int
    done: bool = False
    removed: bool = False
    times: int = 1


class Mount(Struct, frozen=True):
    """One client's."""

    path: Path
    stale: float
    said: Path

    def odd(self) -> list[str]:
        """The calls that it answered oddly, and what they were about."""
        return self.said.read_text().splitlines()


@contextmanager
def mounted(folder: Path, path: Path, *odd: Odd, stale: float = 0.0) -> Iterator[Mount]:
    """One for a moment. `stale`: for how many seconds a name is believed that another client may have changed."""
    path.mkdir()
    made = Mount(path, stale, path.with_suffix(".odd"))
    words = [str(folder), str(path), str(stale), *(msgspec.json.encode(one).decode() for one in odd)]
    command = [sys.executable, "-I", "-S", parent_death.__file__, str(os.getpid()), sys.executable, str(PROGRAM), *words]
    with made.said.open("w") as said, subprocess.Popen(command, stdout=said, env={**os.environ, "PYTHONPATH": str(ROOT)}) as server:
        try:
            assert until(lambda: path.is_mount() or server.poll() is not None, SECONDS)
            assert server.poll() is None, "it did not start"
            yield made
        finally:
            subprocess.run(["umount", "--lazy", path], stderr=subprocess.DEVNULL)
            server.terminate()  # also where a mount namespace that came up meanwhile has a copy of the mount
            with suppress(subprocess.TimeoutExpired):
                server.wait(SECONDS)
            server.kill()
