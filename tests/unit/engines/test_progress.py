"""Progress of a run as `bringup status` shows it: in stages and tasks of the whole plan, not of what has begun."""

import json
from pathlib import Path

import msgspec

from steps.clients.store import Store
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence
from steps.contract.verdict import FailureClass, Verdict, failed, passed
from tests.unit import graph_plans
from workflows.app.runs.run_progress import Progress, planned_graphs, progress
from workflows.engines.folders import StateFolder
from workflows.engines.local.result import RunNodeStatus
from workflows.plan import run_folders
from workflows.stages.stage import GraphTask


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


class Builds:
    """The view of a graph of builds, whose records are in a store."""

    def __init__(self, folder: Path, size: int) -> None:
        self.store = Store(folder)
        self.view = Progress({"stack_build": ["package", "judge"]}, "r", self.store, str, graphs={("stack_build", "package"): size})

    def end(self, shard: int, verdict: Verdict | None = None, phase: str = "Succeeded") -> list[str]:
        """Return the lines for the end of a build of this shard, which left a record with this verdict."""
        if verdict is not None:
            about = {"stage": "stack_build", "task": "package", "verb": "build", "input_digest": "sha256:x", "engine": "local"}
            record = Evidence(run="r", shard=shard, attempt=1, started=1.0, finished=2.0, verdict=verdict, **about)
            self.store.write_evidence(record, canonical)
        path, inputs = f"r.stack-build.package.p{shard}(0)", {"shard": str(shard)}
        template, code = "stack-build-package", 0 if phase == "Succeeded" else 65
        return self.view.take(
            RunNodeStatus(path, f"p{shard}(0)", "Pod", phase, "gone", template, "", inputs, {}, code, 1.0, 2.0, [])
        )

    @property
    def row(self) -> tuple[str, str]:
        return self.view.rows["stack_build"].task, self.view.rows["stack_build"].nodes


BUILT = passed("stack_build/batch", "built")
BROKEN = failed(
    "stack_build/batch", FailureClass.RUNTIME, seen="it did not compile", expected="a package", next_step="read its log"
)


def test_builds_of_a_small_stack_are_shown_by_name(tmp_path: Path) -> None:
    builds = Builds(tmp_path, 3)
    assert builds.end(0, BUILT) == ["stack_build: p0 pass: built (1 of 3 tasks)"]
    assert builds.end(1, BROKEN, "Failed") == [f"stack_build: p1 fail: {BROKEN.reason}"]
    assert builds.end(1, phase="Failed") == [], "Argo tells of a node again while its pod ends"
    assert builds.end(2, BUILT) == ["stack_build: p2 pass: built (3 of 3 tasks, 1 failed)"]
    assert builds.row[1] == "2/3"


def test_hundreds_of_builds_do_not_flood_the_terminal(tmp_path: Path) -> None:
    builds = Builds(tmp_path, 450)
    lines = [line for shard in range(450) for line in builds.end(shard, BROKEN if shard == 7 else BUILT)]
    assert len(lines) == 11  # each tenth, and the failed one
    assert lines[0] == f"stack_build: p7 fail: {BROKEN.reason}"
    assert lines[-1] == "stack_build: p449 pass: built (450 of 450 tasks, 1 failed)"


def test_a_build_that_left_no_record_is_told_by_its_message(tmp_path: Path) -> None:
    builds = Builds(tmp_path, 3)
    assert builds.end(0, phase="Failed") == ["stack_build: p0 Failed: gone"]
    assert builds.row[1] == "0/3"


def test_the_size_of_a_graph_is_in_the_plan_beside_the_tasks(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).run("r")
    (folder.inputs / "tasks").mkdir(parents=True)
    plan = graph_plans.plan([GraphTask(name=f"p{number}", shard=number) for number in range(5)])
    (folder.inputs / "tasks/plan.json").write_bytes(run_folders.tasks_folder(plan)["plan.json"])
    assert planned_graphs(folder) == {("stack_build", "package"): 5}
