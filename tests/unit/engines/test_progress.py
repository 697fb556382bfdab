"""Progress of a run as `bringup status` shows it: in stages and tasks of the whole plan, not of what has begun."""

import json
from pathlib import Path

import msgspec

from workflows.app.runs.run_progress import progress
from workflows.engines.folders import StateFolder
from workflows.engines.local.result import RunNodeStatus


def node(template: str, finished: float | None, kind: str = "Pod") -> RunNodeStatus:
    phase = "Running" if finished is None else "Succeeded"
    return RunNodeStatus(f"r.{template}", template, kind, phase, "", template, "", {}, {}, None, 1.0, finished, [])


def test_it_counts_what_is_still_to_come(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).run("r")
    assert progress(folder, []) == "", "without a plan nothing can be counted"
    (folder.inputs / "tasks").mkdir(parents=True)
    stages = [
        {"id": "os_prep", "tasks": [{"name": "play"}, {"name": "judge"}]},
        {"id": "rke2", "tasks": [{"name": "servers"}, {"name": "judge"}]},
        {"id": "slurm", "tasks": [{"name": "judge"}]},
    ]
    (folder.inputs / "tasks/plan.json").write_text(json.dumps({"stages": stages}))
    assert progress(folder, []) == "stage 0 of 3, 0 of 5 tasks ended"
    nodes = [node("os-prep", 9.0, "DAG"), node("os-prep-play", 2.0), node("os-prep-play", 3.0), node("os-prep-judge", 9.0)]
    nodes += [node("rke2", None, "DAG"), node("rke2-servers", 11.0), node("rke2-servers", None)]
    assert progress(folder, nodes) == "stage 2 of 3, 2 of 5 tasks ended", "a task over shards has ended if all its pods have"
    omitted = msgspec.structs.replace(node("slurm", 12.0, "Skipped"), phase="Omitted")
    assert progress(folder, [*nodes, omitted]) == "stage 2 of 3, 2 of 5 tasks ended", "a stage that never began does not count"
