"""Signals and operators: what is ended, what still runs, and that the journal stays whole."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflows.engines.local import inbox, process_control
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import News, NodeNews, ProcessNews, read_status

Make = Callable[..., dict[str, Any]]
Fork = Callable[[Callable[[], int]], Any]
STUBBORN = "trap '' TERM; setsid sleep 300 & echo $! > /bringup/store/stray; touch /bringup/store/up; while :; do sleep 1; done"

GARBAGE = {"00000-text": b"{no json", "00001-bytes": b'{"verb": "\xff"}', "00002-deep": b"[" * 100_000}


def sleeping(manifest: Make, script: Make, text: str) -> dict[str, Any]:
    """A pod that does not end by itself, a task after it, and an exit handler."""
    return manifest(
        [{"name": "a", "template": "a"}, {"name": "b", "template": "b", "depends": "a.Failed || a.Succeeded"}],
        [
            script("a", text),
            script("b", "touch /bringup/store/b"),
            script("bye", "echo {{workflow.status}} > /bringup/store/bye"),
        ],
        onExit="bye",
    )


def engine(run_dir: Path, workflow: dict[str, Any], grace: float) -> Callable[[], int]:
    return lambda: LocalEngine(run_dir, workflow, grace=grace).run().exit_code


def ends(pid: int) -> bool:
    """Return True if a process that has been killed is gone, or goes within 60 seconds."""
    handle = process_control.open_pidfd(pid)
    if handle is None:
        return True
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    gone = bool(poll.poll(60_000))
    os.close(handle)
    return gone


def test_the_first_signal_stops_as_argo_stop_does(
    tmp_path: Path, manifest: Make, script: Make, fork: Fork, until: Callable[[Path], None]
) -> None:
    run_dir = tmp_path / "run"
    child = fork(engine(run_dir, sleeping(manifest, script, "touch /bringup/store/up; sleep 300"), 5.0))
    until(run_dir / "store/up")
    child.send(signal.SIGTERM)
    assert child.wait() == 65
    status = read_status(run_dir)
    assert (status.phase, status.message, status.shutdown) == ("Failed", "Stopped with strategy 'Stop'", "Stop")
    assert (run_dir / "store/bye").read_text() == "Failed\n"
    assert not (run_dir / "store/b").exists()
    assert not status.alive


def test_what_ignores_sigterm_is_killed_with_its_descendants(
    tmp_path: Path, manifest: Make, script: Make, fork: Fork, until: Callable[[Path], None]
) -> None:
    run_dir = tmp_path / "run"
    child = fork(engine(run_dir, sleeping(manifest, script, STUBBORN), 0.2))
    until(run_dir / "store/up")
    child.send(signal.SIGINT)
    assert child.wait() == 65
    assert ends(int((run_dir / "store/stray").read_text()))
    assert (run_dir / "store/bye").exists()


def test_the_second_signal_terminates_and_spares_no_exit_handler(
    tmp_path: Path, manifest: Make, script: Make, fork: Fork, until: Callable[[Path], None]
) -> None:
    run_dir = tmp_path / "run"
    workflow = sleeping(manifest, script, "touch /bringup/store/up; sleep 300")
    workflow["spec"]["templates"][-1] = script("bye", "touch /bringup/store/leaving; sleep 300")
    child = fork(engine(run_dir, workflow, 5.0))
    until(run_dir / "store/up")
    child.send(signal.SIGTERM)
    until(run_dir / "store/leaving")
    child.send(signal.SIGTERM)
    assert child.wait() == 65
    status = read_status(run_dir)
    assert status.shutdown == "Terminate"
    assert {node.path: node.phase for node in status.nodes}["wf.onExit"] == "Failed"


def test_a_cancel_at_a_gate_and_a_resume_do_not_reopen_it(tmp_path: Path, manifest: Make, script: Make, fork: Fork) -> None:
    """The engine is killed right after the stop was recorded: the new engine only finishes what the stop began."""
    run_dir = tmp_path / "run"
    workflow = manifest(
        [{"name": "gate", "template": "gate"}], [{"name": "gate", "suspend": {}}, script("bye", "exit 0")], onExit="bye"
    )

    def work() -> int:
        def observe(news: News) -> None:
            if isinstance(news, NodeNews) and news.waits:
                inbox.send(run_dir, "stop")
            if isinstance(news, ProcessNews):
                os.kill(os.getpid(), signal.SIGKILL)

        return LocalEngine(run_dir, workflow, observer=observe).run().exit_code

    assert fork(work).wait() == -signal.SIGKILL
    result = LocalEngine.resume(run_dir)
    assert {path: node.phase for path, node in result.state.nodes.items()} == {
        "wf": "Failed",
        "wf.gate": "Failed",
        "wf.onExit": "Succeeded",
    }


def test_background_children_do_not_outlive_their_pod(tmp_path: Path, manifest: Make, script: Make) -> None:
    text = "setsid sleep 300 & echo $! > /bringup/store/a; sleep 300 & echo $! > /bringup/store/b; exit 0"
    result = LocalEngine(tmp_path / "run", manifest([{"name": "t", "template": "t"}], [script("t", text)])).run()
    assert result.phase == "Succeeded"
    assert all(ends(int((tmp_path / "run/store" / name).read_text())) for name in "ab")


def test_children_of_background_children_do_not_outlive_their_pod(tmp_path: Path, manifest: Make, script: Make) -> None:
    """A grandchild becomes the engine's child only after its parent has ended, which is killed with the pod's process group."""
    kept = "/bringup/store/{{inputs.parameters.n}}"
    text = f"sh -c 'setsid sleep 300 & echo $! > {kept}; wait' & until [ -s {kept} ]; do sleep 0.02; done"
    number = {"parameters": [{"name": "n", "value": "{{item}}"}]}
    tasks = [{"name": "t", "template": "t", "withSequence": {"count": "24"}, "arguments": number}]
    template = script("t", text, inputs={"parameters": [{"name": "n"}]})
    result = LocalEngine(tmp_path / "run", manifest(tasks, [template])).run()
    assert result.phase == "Succeeded"
    assert all(ends(int(path.read_text())) for path in (tmp_path / "run/store").iterdir())


def test_an_approval_sets_all_outputs_or_nothing(tmp_path: Path, manifest: Make, script: Make) -> None:
    run_dir = tmp_path / "run"
    supplied = [{"name": name, "valueFrom": {"supplied": {}, "default": "none"}} for name in ("approver", "decision")]
    workflow = manifest(
        [{"name": "gate", "template": "gate"}], [{"name": "gate", "suspend": {}, "outputs": {"parameters": supplied}}]
    )
    tickets: list[str] = []

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.waits:
            tickets.append(inbox.send(run_dir, "approve", "gate", {"decision": "pass"}))
            tickets.append(inbox.send(run_dir, "approve", "elsewhere", {"decision": "pass", "approver": "me"}))
            tickets.append(inbox.send(run_dir, "set", "gate", {"nosuch": "x"}))
            for name, data in GARBAGE.items():
                (run_dir / "inbox" / f"{name}.json").write_bytes(data)
            tickets.append(inbox.send(run_dir, "approve", "gate", {"decision": "pass", "approver": "me"}))

    result = LocalEngine(run_dir, workflow, observer=observe).run()
    replies = [inbox.wait(run_dir, ticket, 1.0) for ticket in tickets]
    assert [reply.accepted for reply in replies if reply] == [False, False, False, True]
    assert result.state.nodes["wf.gate"].outputs.parameters == {"decision": "pass", "approver": "me"}
    for name in GARBAGE:
        garbage = inbox.reply(run_dir, name)
        assert garbage is not None
        assert "cannot be read" in garbage.error


def test_a_bare_resume_leaves_the_default(tmp_path: Path, manifest: Make) -> None:
    supplied = {"parameters": [{"name": "decision", "valueFrom": {"supplied": {}, "default": "hold"}}]}
    workflow = manifest([{"name": "gate", "template": "gate"}], [{"name": "gate", "suspend": {}, "outputs": supplied}])

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.waits:
            inbox.send(tmp_path / "run", "resume")

    result = LocalEngine(tmp_path / "run", workflow, observer=observe).run()
    assert result.state.nodes["wf.gate"].outputs.parameters == {"decision": "hold"}
