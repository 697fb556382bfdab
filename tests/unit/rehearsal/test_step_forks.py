"""Forked steps are processes like started ones: each with a session, folder, environment, output and exit code."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.contract import paths
from workflows.engines.local import process_control
from workflows.engines.local.process_control import Subreaper
from workflows.engines.local.run_settings import default_environment
from workflows.rehearsal.step_forks import ForkedStep, StepForks

HELP = ("python", "-m", "steps", "--help")


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[StepForks]:
    made = StepForks(tmp_path / "steps.log")
    with Subreaper():
        yield made
    made.close()


def run(forks: StepForks, folder: Path, *words: str, **more: str) -> tuple[int, str, bool]:
    """One program to its end: its exit code, what it printed, and whether it was forked."""
    path = folder / "out"
    with path.open("wb") as out:
        child = forks.start(words, {**default_environment(), **more}, folder, out, out)
        leads = os.getsid(child.pid) == child.pid
        code = child.wait()
    assert leads, "it leads a session of its own"
    return code, path.read_text(), isinstance(child, ForkedStep)


def test_a_step_is_forked_and_says_how_it_ended(forks: StepForks, tmp_path: Path) -> None:
    code, said, forked = run(forks, tmp_path, *HELP)
    assert (code, forked) == (0, True)
    assert said.startswith("usage: python -m steps")
    code, said, forked = run(forks, tmp_path, *HELP[:3], "wait", "--task", "nowhere.json")
    assert (code, forked) == (64, True), said


def test_two_steps_share_nothing_but_what_is_imported(forks: StepForks, tmp_path: Path) -> None:
    words = (*HELP[:3], "wait", "--task", "nowhere.json")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        _, said, _ = run(forks, folder, *words, BRINGUP_TASKS=str(folder))
        assert str(folder / "nowhere.json") in said or "BRINGUP" in said


@pytest.mark.parametrize("words", [("sh", "-c", 'echo "$ASKED"; pwd; exit 7'), ("python", "-c", "raise SystemExit(7)")])
def test_another_program_is_started_as_it_is(forks: StepForks, tmp_path: Path, words: tuple[str, ...]) -> None:
    code, said, forked = run(forks, tmp_path, *words, ASKED="yes")
    assert (code, forked) == (7, False)
    assert said.split() == (["yes", str(tmp_path)] if words[0] == "sh" else [])


def test_a_program_that_does_not_exist_is_no_step(forks: StepForks, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out, pytest.raises(FileNotFoundError):
        forks.start(("nowhere", "-m", "steps"), default_environment(), tmp_path, out, out)


def test_a_fork_server_that_has_ended_is_named(forks: StepForks, tmp_path: Path) -> None:
    run(forks, tmp_path, *HELP)
    assert forks.server is not None
    os.kill(forks.server, signal.SIGKILL)
    with (tmp_path / "out").open("wb") as out, pytest.raises(OSError, match="fork server"):
        forks.start(HELP, default_environment(), tmp_path, out, out)


def test_the_next_engine_finds_a_fork_that_nobody_recorded(forks: StepForks, tmp_path: Path) -> None:
    """The step waits for its task file, a FIFO that the test opens at the end."""
    os.mkfifo(tmp_path / "task")
    folders = {paths.variable(name): str(tmp_path) for name in paths.FOLDERS} | {paths.RUN: "run"}
    environment = {**default_environment(), **folders, process_control.MARK: "token/run-open"}
    with (tmp_path / "out").open("wb") as out:
        step = forks.start(("python3", "-m", "steps", "open", "--task", str(tmp_path / "task")), environment, tmp_path, out, out)
        assert step.pid in set(process_control.find_marked_processes("token"))
        (tmp_path / "task").write_bytes(b"no task")
        assert step.wait() == 64
