"""Runs that somebody ends: Ctrl-C, `cancel` in another terminal, kill -9; and what is left of them."""

import contextlib
import getpass
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.cli.conftest import until


@pytest.mark.parametrize("how", ["ctrl-c", "cancel"])
def test_a_cancelled_run_is_reported_and_sealed(machine: Any, approved: Callable[..., str], how: str) -> None:
    (machine.folder / "held.yaml").write_text(approved())
    held = machine.hold("held.yaml")
    if how == "cancel":
        assert "is being cancelled" in machine.call("cancel").out
    else:
        watched = machine.start("watch")
        watched.say("rke2")
        watched.send(signal.SIGINT)
        left = watched.end()
        assert (left.code, "goes on; see it with `bringup watch" in left.out) == (130, True), left.text
        held.send(signal.SIGINT)
    done = held.end()
    assert done.code == 65
    assert ("to go on afterwards: bringup rehearse held.yaml" in done.out) == (how == "ctrl-c")
    by = f"cancelled by {getpass.getuser()} ({'bringup cancel' if how == 'cancel' else 'a signal'})"
    assert f"h200-16: not run: rke2: {by} before it left a record" in done.out  # its own report; the journal knows more
    assert f"rke2: {by} while it waited for an approval" in machine.call("report").out
    assert (machine.runs[0] / "report/report.html").exists()
    assert machine.call("verify", machine.runs[0]).code == 0
    assert machine.processes() == []
    assert f"Failed {by}" in machine.call("status").out
    assert "strategy" not in machine.call("watch").out
    assert f": {by}" in machine.call("timeline").out
    again = machine.call("cancel")
    assert again.code == 64
    assert "no engine drives run" in again.err
    assert "it has ended" in again.err


def test_a_run_that_two_signals_end_at_once_is_reported_and_sealed(machine: Any, approved: Callable[..., str]) -> None:
    (machine.folder / "held.yaml").write_text(approved())
    held = machine.hold("held.yaml")
    held.send(signal.SIGINT)
    held.say("Ctrl-C again")
    held.send(signal.SIGINT)
    done = held.end()
    assert (done.code, "Traceback" in done.text) == (65, False)
    assert "ended at once: its report and seal are written now" in done.out
    assert machine.call("verify", machine.runs[0]).code == 0
    assert f"rke2: cancelled by {getpass.getuser()} (a signal)" in machine.call("report").out
    assert machine.processes() == []


def test_ctrl_c_ends_steps_that_run(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    started = machine.start("rehearse", "small.yaml")
    started.say("rke2: servers pass")
    started.send(signal.SIGINT)
    done = started.end()
    assert done.code == 65
    assert "report.html" in done.out
    assert machine.processes() == []
    assert machine.call("verify", machine.runs[0]).code == 0


def test_ctrl_c_before_the_run_begins_is_one_word(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    started = machine.start("rehearse", "small.yaml")
    started.say("run h200-16-")
    started.send(signal.SIGINT)
    done = started.end()
    assert done.code in (65, 130)  # the engine had begun, or not yet
    assert done.code == 65 or done.err.startswith("error: interrupted\nhint: `bringup runs` lists what has begun")
    assert "Traceback" not in done.err
    until(lambda: not machine.processes(), "the end of what the rehearsal started")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("validate",), "the same command begins anew"),
        (("rehearse",), "`bringup runs` lists"),
        (("image", "build"), "`bringup runs`"),
    ],
)
def test_ctrl_c_within_any_command_says_how_to_go_on(machine: Any, words: tuple[str, ...], hint: str) -> None:
    pipe = machine.folder / "spec.yaml"
    os.mkfifo(pipe)
    started = machine.start(*words, "spec.yaml")
    writers: list[int] = []

    def reads() -> bool:
        """Return True once the command has opened the pipe, so that it waits for text."""
        with contextlib.suppress(OSError):
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writers)

    until(reads, "reading of the spec")
    started.send(signal.SIGINT)
    os.close(writers[0])  # a signal between `open` and `read` is seen only once the read ends
    done = started.end()
    assert (done.code, done.out) == (130, "")
    assert done.err.startswith(f"error: interrupted\nhint: {hint}")


def test_nothing_outlives_a_killed_rehearsal(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    started = machine.start("rehearse", "small.yaml")
    started.say("rke2: servers pass")
    started.send(signal.SIGSTOP)  # or it ends while we ask
    assert len(machine.processes()) >= 3  # the command, the API server, the simulator, perhaps a step
    driven = machine.call("resume")
    assert driven.code == 75
    assert "is being driven by another process" in driven.err
    started.send(signal.SIGKILL)
    started.end()
    until(lambda: not machine.processes(), "the end of what the rehearsal started")
    assert "interrupted" in machine.call("status").out
    # it fell while a task ran, or between two
    assert re.search(
        r"^h200-16: inconclusive: rke2: interrupted(?: while \w+ ran|: \w+ left no record)", machine.call("report").out
    )
    watched = machine.call("watch")
    assert watched.code == 65
    assert "interrupted: no engine drives it" in watched.out
    cancelled = machine.call("cancel")
    assert cancelled.code == 64
    assert "it was interrupted, and a rehearsal is over then" in cancelled.err
    for said in (cancelled.err, machine.call("resume").err):
        assert "hint: start it again: bringup rehearse small.yaml\n" in said
    unsealed = machine.call("verify", machine.runs[0])
    assert unsealed.code == 64
    assert "was interrupted, so nothing of it is sealed yet" in unsealed.err
    assert "a rehearsal is over then; start it again: bringup rehearse small.yaml" in machine.call("status").out
    assert "os_prep" in machine.call("report").out


def test_an_open_approval_of_a_killed_rehearsal_cannot_be_answered(machine: Any, approved: Callable[..., str]) -> None:
    (machine.folder / "held.yaml").write_text(approved())
    held = machine.hold("held.yaml")
    held.send(signal.SIGKILL)
    held.end()
    refused = machine.call("approve", "--as", "ada@example.org")
    assert refused.code == 64
    assert "no engine drives run" in refused.err
    assert "hint: " in refused.err
    until(lambda: not machine.processes(), "the end of what the rehearsal started")
