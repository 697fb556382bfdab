"""The view of a run on Argo and what it asks of home: in order, one request at a time, never in the way of who follows."""

import io
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from steps.clients.store import Store
from steps.contract.last_word import Said
from steps.errors import Unreachable
from workflows.cli import live
from workflows.cli.argo_live import AwayProgress, Listener
from workflows.engines.local.result import NodeNews, NodeStatus

PATIENCE = 20.0
WORDS = {
    "r.rke2.play": Said("pass", "3 of 3 nodes: installed", 3, 3),
    "r.rke2.judge": Said("pass", "3 of 3 nodes passed all gates", 3, 3),
    "r.gang.judge": Said("pass", "all gates passed"),
}


def ended(stage: str, task: str, message: str = "") -> NodeNews:
    """The last news of a task's pod; it failed where it has a message."""
    phase, verdict = ("Failed", "fail") if message else ("Succeeded", "pass")
    outputs: dict[str, str | None] = {"verdict": verdict}
    name = f"r.{stage}.{task}"
    return NodeNews(NodeStatus(name, task, "Pod", phase, message, f"{stage}-{task}", "", {}, outputs, 0, 10.0, 12.0, []), "Running")


class Seen:
    """A view that prints here, and home as it answers: it holds its answer back until `go`."""

    def __init__(self, folder: Path, hear: Callable[[], Mapping[str, Said]] | None = None, patience: float = PATIENCE) -> None:
        self.out, self.asked, self.began, self.go = io.StringIO(), 0, threading.Event(), threading.Event()
        tasks = {"rke2": ["play", "judge"], "gang": ["judge"]}
        self.progress = AwayProgress(tasks, "r", Store(folder), str)
        view = live.View(self.progress, Console(file=self.out, width=200))
        self.listener = Listener(view, self.progress, hear or self.held, patience)

    def held(self) -> Mapping[str, Said]:
        self.asked += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        return WORDS

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


def test_what_ended_meanwhile_is_asked_at_once_and_shown_in_order(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    seen.listener.observe(ended("rke2", "play"))
    assert seen.began.wait(PATIENCE)
    for news in (ended("rke2", "judge"), ended("gang", "judge")):
        seen.listener.observe(news)  # returns although home has not answered
    assert seen.lines == []
    seen.go.set()
    seen.listener.finish()
    assert seen.lines == [
        "rke2: play pass: 3 of 3 nodes: installed",
        "rke2: pass: 3 of 3 nodes passed all gates (2.0 s)",
        "gang: pass: all gates passed (2.0 s)",
    ]
    assert seen.asked == 1  # the first answer told of all of them
    assert seen.progress.rows["rke2"].nodes == "3/3"


def test_who_left_is_shown_nothing_more(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    seen.listener.observe(ended("rke2", "judge"))
    assert seen.began.wait(PATIENCE)
    seen.listener.leave()
    seen.go.set()
    seen.listener.finish()
    assert seen.lines == []


def test_home_that_does_not_answer_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = Seen(tmp_path, patience=0.05)
    for news in (
        ended("rke2", "judge"),
        ended("gang", "judge", "main: Error (exit code 65): fail 0/2: 0 of 2 nodes pass; n1: slow"),
    ):
        seen.listener.observe(news)
    seen.listener.finish()
    assert seen.lines == ["rke2: pass (2.0 s)", "gang: fail: 0 of 2 nodes pass; n1: slow (2.0 s)"]
    assert seen.progress.rows["gang"].nodes == "0/2"
    (note,) = capsys.readouterr().err.splitlines()
    assert note == "note: what gates say cannot be read now, bringup report r tells it: home has not answered in 0.05 s"
    seen.go.set()


def test_home_that_cannot_be_asked_is_told_of_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def away() -> Mapping[str, Said]:
        raise Unreachable("GET pods: connection refused")

    seen = Seen(tmp_path, away)
    for news in (ended("rke2", "judge"), ended("gang", "judge", "main: Error (exit code 65)")):
        seen.listener.observe(news)
    seen.listener.finish()
    assert seen.lines == ["rke2: pass (2.0 s)", "gang: fail (2.0 s); why: bringup report r"]
    (note,) = capsys.readouterr().err.splitlines()
    assert note.endswith("bringup report r tells it: GET pods: connection refused")


def test_what_keeps_the_view_from_being_shown_ends_who_follows(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    record = tmp_path / "runs/r/evidence/gang/judge/0000/01.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    seen.listener.observe(ended("gang", "judge", "main: Error (exit code 65): fail: why"))
    seen.listener.finish()
    with pytest.raises(msgspec.DecodeError):
        seen.listener.observe(ended("gang", "judge"))
