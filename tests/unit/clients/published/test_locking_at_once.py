"""A lock whose holder is gone, and several who want it: one is stopped before each of its steps, and others come right then."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from steps.clients.releases import release_lease, shell_session
from steps.clients.releases.tree_operations import TreeTransport
from steps.errors import StoreBusy
from steps.nodeimage.publishing import image_kind
from steps.nodeimage.publishing.image_kind import local_tree
from tests.unit.clients.published.published_trees import KINDS, ended, forked

HAD, BUSY, STEP = b"h", b"b", b"."
STEPS = {"open", "os.link", "os.rename", "os.remove", "os.listdir", "os.truncate"}
"""Python's own names of the calls that change or read a folder."""
TOOLS = ("cat", "head", "ln", "mv", "rm", "stat", "sync")
"""Programs by which a session changes or reads one."""
WRAPPER = """#!/bin/sh
if [ ! -e {folder}/over ]; then
  printf . >{folder}/say
  /usr/bin/head -c 1 <{folder}/go >/dev/null
fi
exec /usr/bin/{tool} "$@"
"""
MOST = 60
"""More steps than taking a lock has."""


def gone_holder(root: Path) -> None:
    """A tree whose lock is that of a process that is no more."""
    folder = root / "compute/incoming"
    folder.mkdir(parents=True)
    with release_lease.hold_lease(local_tree(root), "compute", "dead", ""):
        lock = next(folder.glob(".lock*"))
        dead = lock.read_text().replace(f'"process":{os.getpid()}', f'"process":{2**22 + 1}')
    lock.write_text(dead)


def taken(way: TreeTransport, token: str, holders: ExitStack) -> bool:
    """Return whether the lock was acquired; it is held until `holders` closes."""
    try:
        holders.enter_context(release_lease.hold_lease(way, "compute", token, ""))
    except StoreBusy:
        return False
    return True


class Stopped:
    """A process that takes the lock and pauses before each of its steps until it is told to go on."""

    def __init__(self, kind: str, root: Path, folder: Path) -> None:
        folder.mkdir()
        self._over = folder / "over"
        for name in ("say", "go"):
            os.mkfifo(folder / name)
        self._said, self._go = (os.open(folder / name, os.O_RDWR) for name in ("say", "go"))
        self._kept = ExitStack()
        self._child = forked(partial(self._by_calls, root) if kind == "local" else partial(self._by_programs, root, folder))

    def said(self) -> bytes:
        """Wait for the next byte from the process: `STEP` before a step, `HAD` or `BUSY` when it has ended."""
        return os.read(self._said, 1)

    def go_on(self) -> None:
        os.write(self._go, b".")

    def close(self) -> None:
        """Let it go on to its end without stopping again."""
        self._over.touch()
        os.write(self._go, STEP * MOST)
        assert ended(self._child) == 0
        os.close(self._said)
        os.close(self._go)

    def _wait(self, said: bytes) -> None:
        os.write(self._said, said)
        os.read(self._go, 1)

    def _by_calls(self, root: Path) -> None:
        way, watching = local_tree(root), True

        def watch(event: str, words: tuple[object, ...]) -> None:
            if watching and event in STEPS and "/compute/incoming" in str(words[0]):
                self._wait(STEP)

        sys.addaudithook(watch)
        had = taken(way, "slow", self._kept)
        watching = False
        self._wait(HAD if had else BUSY)

    def _by_programs(self, root: Path, folder: Path) -> None:
        for tool in TOOLS:
            (folder / tool).write_text(WRAPPER.format(tool=tool, folder=folder))
            (folder / tool).chmod(0o755)
        command = ["env", f"PATH={folder}:{os.environ['PATH']}", "sh", "-c", shell_session.PROGRAM.read_text()]
        way = shell_session.ShellTransport(command, str(root), "there", layout=image_kind.LAYOUT)
        had = taken(way, "slow", self._kept)
        self._wait(HAD if had else BUSY)
        way.close()


def play(stopped: Stopped, before: Callable[[int], None]) -> tuple[bytes, int]:
    """Let it go on to its end, with what happens before each of its steps; how it ended, after how many."""
    for number in range(MOST):
        if (said := stopped.said()) != STEP:
            return said, number
        before(number)
        stopped.go_on()
    raise AssertionError("there is no end of it")


@pytest.mark.parametrize("kind", KINDS)
def test_two_who_come_while_a_third_takes_a_lock_over(tmp_path: Path, kind: str) -> None:
    """Before any of its steps one takes it over as well, and from then on another tries before each: never do two have it."""
    ends = []
    for first in range(MOST):
        root = tmp_path / f"tree{first}"
        gone_holder(root)
        stopped, had = Stopped(kind, root, tmp_path / f"tools{first}"), list[str]()
        with ExitStack() as holders:

            def come(number: int) -> None:
                token = "one" if number == first else "two"  # noqa: B023  # called within this very turn
                if number >= first and taken(local_tree(root), token, holders):  # noqa: B023
                    had.append(token)  # noqa: B023

            try:
                said, count = play(stopped, come)
            finally:
                stopped.close()
            ends.append("slow" if said == HAD else "busy")
            assert len(had) + (said == HAD) == 1, (first, said, had)
        if first >= count:
            break
    assert {"slow", "busy"} == set(ends)
    assert len(ends) > 6
