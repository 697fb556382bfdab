"""The view of a run on Argo and what it asks of home: in order, one request at a time, never in the way of who follows."""

import http.server
import io
import json
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from steps.clients.store import Store
from steps.contract.runs.last_word import Said
from steps.errors import Unreachable
from workflows.app.runs import argo_watch
from workflows.app.runs.argo_runs import ArgoRun
from workflows.app.runs.argo_watch import AwayProgress, Listener
from workflows.cli import output
from workflows.cli.run_view import View
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.folders import StateFolder as Runs
from workflows.engines.local.result import NodeNews, RunNodeStatus

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
    return NodeNews(
        RunNodeStatus(name, task, "Pod", phase, message, f"{stage}-{task}", "", {}, outputs, 0, 10.0, 12.0, []), "Running"
    )


class Seen:
    """A view that prints here, and home as it answers: it holds its answer back until `go`."""

    def __init__(
        self,
        folder: Path,
        hear: Callable[[], Mapping[str, Said]] | None = None,
        patience: float = PATIENCE,
        encoding: str = "utf-8",
    ) -> None:
        self.asked, self.began, self.go = 0, threading.Event(), threading.Event()
        self.out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        tasks = {"rke2": ["play", "judge"], "gang": ["judge"]}
        self.progress = AwayProgress(tasks, "r", Store(folder), str)
        view = View(self.progress, Console(file=self.out, width=200))
        self.listener = Listener(output, view, self.progress, hear or self.held, patience)

    def held(self) -> Mapping[str, Said]:
        self.asked += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        return WORDS

    @property
    def lines(self) -> list[str]:
        self.out.seek(0)
        return self.out.read().splitlines()


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


def half_a_record(folder: Path) -> None:
    record = folder / "runs/r/evidence/gang/judge/0000/01.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")


def test_what_keeps_the_last_news_from_being_shown_ends_who_follows(tmp_path: Path) -> None:
    seen = Seen(tmp_path)
    half_a_record(tmp_path)
    seen.listener.observe(ended("gang", "judge", "main: Error (exit code 65): fail: why"))
    with pytest.raises(msgspec.DecodeError):
        seen.listener.finish()
    with pytest.raises(msgspec.DecodeError):
        seen.listener.observe(ended("gang", "judge"))


@pytest.mark.parametrize("kind", [ValueError, UnicodeEncodeError])
def test_whatever_keeps_news_from_being_shown_ends_who_follows(tmp_path: Path, kind: type[Exception]) -> None:
    """A thread that dies of it would leave a view that says nothing for hours."""
    seen = Seen(tmp_path, dict, encoding="ascii" if kind is UnicodeEncodeError else "utf-8")
    news = ended("gang", "judge", "main: Error (exit code 65): fail: \u2026")
    strange = msgspec.structs.replace(news.node, inputs={"shard": "two"}) if kind is ValueError else news.node
    seen.listener.observe(NodeNews(strange, "Running"))
    with pytest.raises(kind):
        seen.listener.finish()
    with pytest.raises(kind):
        seen.listener.observe(ended("rke2", "judge"))


def test_an_answer_of_home_that_makes_no_sense_does_not_end_the_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def odd() -> Mapping[str, Said]:
        raise KeyError("items")

    seen = Seen(tmp_path, odd)
    seen.listener.observe(ended("rke2", "judge"))
    seen.listener.finish()
    assert seen.lines == ["rke2: pass (2.0 s)"]
    assert capsys.readouterr().err.endswith("bringup report r tells it: KeyError: 'items'\n")


# --- who leaves -----------------------------------------------------------------------------------------------------------

POD = {
    "id": "r-1",
    "name": "r.gang.judge",
    "type": "Pod",
    "phase": "Succeeded",
    "templateName": "gang-judge",
    "startedAt": "2026-01-01T00:00:00Z",
    "finishedAt": "2026-01-01T00:00:02Z",
    "outputs": {"parameters": [{"name": "verdict", "value": "pass"}]},
}
ENDED = {"metadata": {"name": "r"}, "status": {"phase": "Succeeded", "nodes": {"r-1": POD}}}


@pytest.fixture
def slow_home(tmp_path: Path) -> Iterator[Home]:
    """A home cluster with a run that has ended; it does not tell of its pods before the test is over."""
    go = threading.Event()

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pods = "/pods" in self.path
            if pods:
                go.wait(PATIENCE)
            answer = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [] if pods else [ENDED]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "any"}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        try:
            yield Home(HomeAddress(kubeconfig=str(tmp_path / "kubeconfig"), namespace="n"))
        finally:
            go.set()
            server.shutdown()
            serving.join()


def is_finishing(thread: int) -> bool:
    """Return True if a thread is inside `Listener.finish`, where it waits for the last lines of a view."""
    frame = sys._current_frames()[thread]
    while frame.f_back and frame.f_code is not Listener.finish.__code__:
        frame = frame.f_back
    return frame.f_code is Listener.finish.__code__


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_leaves_a_run_that_has_ended_is_told_so(
    slow_home: Home, tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Runs(tmp_path / "runs").run("r")
    (folder.inputs / "tasks").mkdir(parents=True)
    (folder.inputs / "tasks/plan.json").write_text(json.dumps({"stages": [{"id": "gang", "tasks": [{"name": "judge"}]}]}))
    follower = threading.main_thread().ident or 0

    def interrupt() -> None:
        idle, end = select.poll(), time.monotonic() + PATIENCE
        while not is_finishing(follower) and time.monotonic() < end:
            idle.poll(10)
        signal.pthread_kill(follower, number)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        argo_watch.watch(output, ArgoRun(slow_home, folder))
    interrupting.join()
    assert capsys.readouterr().out.splitlines()[-1] == "run r has ended; its evidence and report: bringup watch r"
