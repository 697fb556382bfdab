"""kill -9 of the engine at every record of its journal, then resume: the same end, no process of the dead engine left."""

from __future__ import annotations

import itertools
import os
import select
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from workflows.engines.local import inbox
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.process_control import start_time
from workflows.engines.local.result import News, NodeNews, ProcessNews, RecordNews, RunResult, read_status, record

GRACE = 1.0

Make = Callable[..., dict[str, Any]]


def pipeline(manifest: Make, script: Make) -> dict[str, Any]:
    """Open, fan out (one shard is retried once), pass a gate, use its answer; an exit handler."""
    shard = "[ {{inputs.parameters.s}} = 1 ] && [ {{retries}} = 0 ] && exit 75; echo v > /bringup/out/v"
    value = {"parameters": [{"name": "v", "valueFrom": {"path": "/bringup/out/v"}}]}
    return manifest(
        [
            {"name": "open", "template": "open"},
            {
                "name": "play",
                "template": "play",
                "depends": "open",
                "withParam": "{{tasks.open.outputs.parameters.v}}",
                "arguments": {"parameters": [{"name": "s", "value": "{{item}}"}]},
            },
            {"name": "gate", "template": "gate", "depends": "play.Succeeded"},
            {
                "name": "use",
                "template": "use",
                "depends": "gate",
                "arguments": {"parameters": [{"name": "d", "value": "{{tasks.gate.outputs.parameters.decision}}"}]},
            },
        ],
        [
            script("open", "echo '[0,1]' > /bringup/out/v", outputs=value),
            script(
                "play",
                shard,
                inputs={"parameters": [{"name": "s"}]},
                outputs=value,
                retryStrategy={"limit": 2, "expression": "asInt(lastRetry.exitCode) == 75"},
            ),
            {
                "name": "gate",
                "suspend": {},
                "outputs": {"parameters": [{"name": "decision", "valueFrom": {"supplied": {}, "default": "hold"}}]},
            },
            script("use", "echo {{inputs.parameters.d}} > /bringup/out/v", inputs={"parameters": [{"name": "d"}]}, outputs=value),
            script("bye", "echo {{workflow.status}} > /bringup/out/v", outputs=value),
        ],
        onExit="bye",
    )


def approving(run_dir: Path) -> Callable[[News], None]:
    """An operator who approves each gate as soon as it opens (again after a resume: the first request may have died)."""

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.waits:
            inbox.send(run_dir, "approve", news.node.path, {"decision": "pass"})

    return observe


def shape(result: RunResult) -> dict[str, Any]:
    """Return the parts of a result that are equal however often the engine was killed: no times and no ranks of nodes."""
    found = record(result)
    for node in found["nodes"]:
        node.pop("rank")
    return {key: found[key] for key in ("phase", "message", "outputs", "nodes")}


def kill_at(run_dir: Path, workflow: dict[str, Any], kind: type, number: int) -> int:
    """In a forked process: run until the `number`-th news of this kind, then die on the spot; 0 when the run has fewer."""
    seen = 0
    approve = approving(run_dir)

    def observe(news: News) -> None:
        nonlocal seen
        if isinstance(news, kind):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
        approve(news)

    LocalEngine(run_dir, workflow, observer=observe, grace=GRACE).run()
    return 0


def resumed(run_dir: Path) -> RunResult:
    """Resume; a gate that was open when the engine died is approved again, unless the request survived in the inbox."""
    status = read_status(run_dir)
    if status.gates and not any(inbox.folder(run_dir).glob("*.json")):
        inbox.send(run_dir, "approve", status.gates[0].path, {"decision": "pass"})
    return LocalEngine.resume(run_dir, observer=approving(run_dir))


def test_killed_at_every_record_and_every_start_the_run_ends_the_same(
    tmp_path: Path, manifest: Make, script: Make, fork: Callable[[Callable[[], int]], Any]
) -> None:
    workflow = pipeline(manifest, script)
    whole = tmp_path / "whole"
    expected = shape(LocalEngine(whole, workflow, observer=approving(whole), grace=GRACE).run())
    assert expected["phase"] == "Succeeded"
    for kind, least in ((RecordNews, 10), (ProcessNews, 5)):
        # until a run ends by itself: two children that end at one moment share a record, so no two runs need to have equally many
        for number in itertools.count(1):
            run_dir = tmp_path / f"{kind.__name__}-{number}"
            code = fork(partial(kill_at, run_dir, workflow, kind, number)).wait()
            assert code in (-signal.SIGKILL, 0), (kind.__name__, number)
            assert shape(resumed(run_dir)) == expected, (kind.__name__, number)
            if code == 0:
                break
        assert number > least, (kind.__name__, number)


def begun(run_dir: Path, workflow: Any, fork: Callable[[Callable[[], int]], Any]) -> Any:
    """An engine in a process of its own that runs a workflow."""

    def work() -> int:
        LocalEngine(run_dir, workflow, grace=GRACE).run()
        return 0

    return fork(work)


def test_the_children_of_a_dead_engine_are_ended_before_anything_starts_again(
    tmp_path: Path, manifest: Make, script: Make, fork: Callable[[Callable[[], int]], Any]
) -> None:
    """The first start sleeps (with a child that left its session), the second finds the marker and succeeds."""
    text = (
        "if mkdir /bringup/store/first; then setsid sleep 300 & echo $! > /bringup/store/stray; "
        "echo $$$$ > /bringup/store/pid; wait; fi; for f in stray pid; do p=$(cat /bringup/store/$f); "
        "case $(sed 's/.*) //' /proc/$p/stat 2>/dev/null) in Z*|'') ;; *) exit 9;; esac; done"
    )
    workflow = manifest([{"name": "a", "template": "t"}], [script("t", text)])
    run_dir = tmp_path / "run"
    child = begun(run_dir, workflow, fork)
    store = run_dir / "store"
    poll = select.poll()
    while not (store / "pid").exists() or not (store / "pid").read_text().strip():
        poll.poll(10)
    child.send(signal.SIGKILL)
    child.wait()
    pids = [int((store / name).read_text()) for name in ("pid", "stray")]
    assert all(start_time(pid) for pid in pids)
    result = LocalEngine.resume(run_dir)
    assert result.phase == "Succeeded", record(result)


def test_what_a_child_of_a_dead_engine_starts_when_it_is_told_to_end_is_ended_too(
    tmp_path: Path, manifest: Make, script: Make, fork: Callable[[Callable[[], int]], Any], until: Callable[[Path], None]
) -> None:
    text = (
        "if mkdir /bringup/store/first; then trap 'sleep 300 & echo $! > /bringup/store/late; exit' TERM; "
        "touch /bringup/store/up; while :; do sleep 0.1; done; fi; p=$(cat /bringup/store/late); "
        "case $(sed 's/.*) //' /proc/$p/stat 2>/dev/null) in Z*|'') ;; *) exit 9;; esac"
    )
    workflow = manifest([{"name": "a", "template": "t"}], [script("t", text)])
    run_dir = tmp_path / "run"
    child = begun(run_dir, workflow, fork)
    until(run_dir / "store/up")
    child.send(signal.SIGKILL)
    child.wait()
    result = LocalEngine.resume(run_dir)
    assert result.phase == "Succeeded", record(result)


def test_a_finished_run_is_returned_as_it_is(tmp_path: Path, manifest: Make, script: Make) -> None:
    workflow = manifest([{"name": "a", "template": "t"}], [script("t", "echo x >> /bringup/store/count; exit 3")])
    first = LocalEngine(tmp_path / "run", workflow).run()
    again = LocalEngine.resume(tmp_path / "run")
    assert (first.phase, first.exit_code) == ("Failed", 65)
    assert shape(again) == shape(first)
    assert (tmp_path / "run/store/count").read_text() == "x\n"


def test_a_duration_goes_on_while_no_engine_lives(
    tmp_path: Path, manifest: Make, script: Make, fork: Callable[[Callable[[], int]], Any]
) -> None:
    workflow = manifest([{"name": "gate", "template": "gate"}], [{"name": "gate", "suspend": {"duration": "1s"}}])

    def work() -> int:
        def observe(news: News) -> None:
            if isinstance(news, NodeNews) and news.waits:
                os.kill(os.getpid(), signal.SIGKILL)

        LocalEngine(tmp_path / "run", workflow, observer=observe).run()
        return 0

    assert fork(work).wait() == -signal.SIGKILL
    select.select([], [], [], 1.1)
    result = LocalEngine.resume(tmp_path / "run")
    assert result.phase == "Succeeded"
    assert result.state.at < 60
