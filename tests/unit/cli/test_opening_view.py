"""The live view of a run whose first task fails: one line that says why, on either engine; nothing while it does well."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from steps.clients.store import Store
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import FailureClass, failed
from tests.unit import chained_pipeline
from tests.unit.cli.test_logs import drill
from workflows.app.runs.argo_watch import AwayProgress
from workflows.app.runs.run_progress import Progress
from workflows.cli.run_view import View
from workflows.engines import launch, run_inputs
from workflows.engines.folders import StateFolder
from workflows.engines.local.result import NodeNews, RunNodeStatus
from workflows.render.bundle import render

SEEN = "the servers belong to different clusters"


def ended(phase: str, message: str = "") -> NodeNews:
    return NodeNews(RunNodeStatus("r.open", "open", "Pod", phase, message, "run-open", "", {}, {}, 65, 1.0, 2.0, []), "Running")


def shown(kind: type[Progress], folder: Path, *news: NodeNews) -> list[str]:
    out = io.StringIO()
    with View(kind({"rke2": ["judge"]}, "r", Store(folder), str), Console(file=out, width=300)) as view:
        for one in news:
            view.observe(one)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("kind", [Progress, AwayProgress])
def test_the_store_tells_why_open_failed(kind: type[Progress], tmp_path: Path) -> None:
    why = failed("run/open", FailureClass.DEPENDENCY, seen=SEEN, expected="one", next_step="correct the hosts")
    record = Evidence(
        run="r", stage="run", task="open", verb="open", shard=0, attempt=1, input_digest="sha256:0", engine="local",
        started=1.0, finished=2.0, verdict=why, tools={},
    )  # fmt: skip
    Store(tmp_path).write_evidence(record, canonical)
    (line,) = shown(kind, tmp_path, ended("Running"), ended("Failed", "exit code 65"))
    assert line == f"open: fail: {SEEN}; expected one; next: correct the hosts"


@pytest.mark.parametrize("kind", [Progress, AwayProgress])
def test_without_a_record_its_log_is_named(kind: type[Progress], tmp_path: Path) -> None:
    assert shown(kind, tmp_path, ended("Running"), ended("Succeeded")) == []
    (line,) = shown(kind, tmp_path, ended("Error", "pod deleted"))
    assert line == "open: Error: pod deleted; why: bringup logs run.open --run r"


def test_on_argo_its_pod_tells_before_the_evidence_is_here(tmp_path: Path) -> None:
    assert shown(AwayProgress, tmp_path, ended("Failed", f"main: Error (exit code 65): fail: {SEEN}")) == [f"open: fail: {SEEN}"]


def test_in_a_terminal_it_stands_above_the_table(tmp_path: Path) -> None:
    out = io.StringIO()
    terminal = Console(file=out, width=120, force_terminal=True, no_color=True)
    with View(AwayProgress({"rke2": ["judge"]}, "r", Store(tmp_path), str), terminal) as view:
        view.observe(ended("Failed", f"main: Error (exit code 65): fail: {SEEN}"))
    assert f"open: fail: {SEEN}" in out.getvalue()


@pytest.mark.parametrize("created", [True, False])
def test_the_local_engine_tells_it_as_argo_does(machine: Any, created: bool) -> None:
    plan, folder = drill(), StateFolder(machine.home).run("drill")
    run_inputs.write(folder, plan, render(plan, chained_pipeline.build), machine.folder, {})
    if not created:
        (index,) = (folder.inputs / "fleet").glob("index*")
        index.write_text(index.read_text().replace(plan.digest, f"sha256:{'0' * 64}"))
    out = io.StringIO()
    with View(Progress({"drill": ["judge"]}, "drill", Store(folder.home.store), str), Console(file=out, width=999)) as view:
        assert launch.start(folder, {}, view.observe, reuse="nope").exit_code == 65
    (line,) = out.getvalue().splitlines()
    seen = "there is no run nope to reuse" if created else "fleet belongs to plan sha256:0000"
    assert line.startswith(f"open: fail: {seen}")
    reason = line.removeprefix("open: fail: ")
    rows = [{"stage": "open", "status": "fail", "reason": reason}]
    rows += [{"stage": "drill", "status": "not run", "reason": "open did not pass"}] if created else []
    assert json.loads(machine.call("status", "drill", "-o", "json").out)["stages"] == rows
    assert line in machine.call("watch", "drill").out.splitlines()
    report = machine.call("report", "drill")
    assert (f"fail: open: {reason}" if created else f"run drill was not created: {reason}") in report.text
