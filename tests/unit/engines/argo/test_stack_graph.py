"""A stack of 450 builds on both engines, with stand-ins for its builds: equal records, and only dependents of a failure stop."""

import functools
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.argo_stand_in.pod_driver import FRESH_STEPS
from tests.unit import graph_plans, stand_in_builds
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import Follower
from tests.unit.simulated_builds import simulate
from tests.unit.softwarestack.matrix_locks import matrix
from workflows.engines.argo import installer, submission
from workflows.engines.argo.workflow_objects import NODE_NAME, WORKFLOW_LABEL
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import record
from workflows.engines.local.run_settings import RunPaths
from workflows.plan.model import Plan
from workflows.render import graph_tasks
from workflows.render.bundle import Bundle, render
from workflows.render.steps import Settings
from workflows.softwarestack import build_batches, build_tasks, spack_lock, stack_plan
from workflows.stages.stage import GraphTask

SLOTS = 16


def graph() -> tuple[GraphTask, ...]:
    """Return the tasks of all batches of the stack."""
    plan = stack_plan.plan(spack_lock.parse(matrix(3, 1).text().encode(), "synthetic"))
    assert len(plan.builds) > 440
    made, names = build_batches.batches(plan.schedule, SLOTS), build_tasks.task_names(plan)
    return tuple(
        GraphTask(name=names[key], shard=number, after=tuple(names[needed] for needed in made.direct[key]), group=made.group[key])
        for number, key in enumerate(made.order)
    )


def phases_after(failed: str, tasks: tuple[GraphTask, ...]) -> dict[str, str]:
    """Return the phases of all tasks if one of them fails.

    Its dependents in the same DAG are omitted. Those in another DAG start, miss what they need in the cache, and fail.
    """
    group, ended = {each.name: each.group for each in tasks}, dict[str, str]()
    for each in tasks:
        lacking = [name for name in each.after if ended[name] != "Succeeded"]
        is_omitted = any(group[name] == each.group for name in lacking)
        ended[each.name] = "Omitted" if is_omitted else "Failed" if lacking or each.name == failed else "Succeeded"
    return ended


def phases(nodes: Any, tasks: tuple[GraphTask, ...]) -> dict[str, str]:
    """Return the phases of the graph's tasks by name; `nodes` are names with phases, a retried node before its attempts."""
    names = {each.name for each in tasks}
    return {name: phase for name, phase in nodes if name in names}


@pytest.fixture
def failing() -> tuple[GraphTask, tuple[GraphTask, ...]]:
    """A batch that fails, and all batches: some others wait for it, but not most of them."""
    seed = int(os.environ.get("BRINGUP_SEED") or time.time_ns() % 1_000_000)
    print(f"seed {seed} (BRINGUP_SEED)")
    tasks = graph()
    stopped = {each.name: sum(phase != "Succeeded" for phase in phases_after(each.name, tasks).values()) for each in tasks}
    candidates = [each for each in tasks if 4 <= stopped[each.name] <= len(tasks) // 2]
    return random.Random(seed).choice(candidates), tasks


def embedded(folder: Path, bundle: Bundle, python: Path) -> list[tuple[str, str]]:
    """Run the pipeline on the embedded engine, and return names and phases of its nodes."""
    manifest = {**bundle.workflow, "metadata": {**bundle.workflow["metadata"], "name": "wf"}}
    environment = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    templates = {bundle.template["metadata"]["name"]: bundle.template}
    paths = RunPaths.below(folder / "run")
    result = LocalEngine(folder / "run", manifest, templates, environment, paths, parallelism=SLOTS).run()
    return [(node["name"], node["phase"]) for node in record(result)["nodes"]]


def begin(lab: Lab, plan: Plan, bundle: Bundle, python: Path) -> Follower:
    """Submit the pipeline, and start the stand-in for Argo's controller that runs it."""
    lab.stand_in(environment={"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}, parallelism=SLOTS)
    installer.install(lab.home, plan, bundle, {})
    submission.submit(lab.home, submission.workflow("r1", plan, bundle))
    return Follower(lab)


def ended(follower: Follower) -> list[tuple[str, str]]:
    """Wait for the end of a run, and return names and phases of its nodes as the API shows them."""
    last = follower.await_end()
    assert last.status.phase == "Succeeded"
    return [(node.display_name, node.phase) for node in last.nodes().values()]


def test_both_engines_leave_the_records_of_a_stack_of_450_builds_and_stop_dependents_alone(
    emulated: Lab, failing: tuple[GraphTask, tuple[GraphTask, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FRESH_STEPS, "1")  # the stand-in for a build is a program, and no fork of the real steps
    failed, tasks = failing
    plan = graph_plans.plan(tasks, SLOTS)
    bundle = render(plan, graph_plans.build, Settings(namespace=emulated.where.namespace))
    dags = [entry["dag"]["tasks"] for entry in bundle.template["spec"]["templates"] if "dag" in entry]
    assert max(map(len, dags)) <= graph_tasks.MOST_TASKS
    python = stand_in_builds.program(tmp_path, fail=(failed.shard,))

    shards = {each.name: each.shard for each in tasks}
    stand_in_builds.write_needs(tmp_path, {each.shard: [shards[name] for name in each.after] for each in tasks})

    wanted = phases_after(failed.name, tasks)
    codes = {shards[name]: 65 if phase == "Failed" else 0 for name, phase in wanted.items() if phase != "Omitted"}
    course = simulate(bundle, {each.shard: 1.0 for each in tasks}, lambda shard, _: codes[shard])
    assert phases(course.phases().items(), tasks) == wanted
    assert phases(embedded(tmp_path, bundle, python), tasks) == wanted
    assert phases(ended(begin(emulated, plan, bundle, python)), tasks) == wanted

    left = {shard: f"{code}\n" for shard, code in codes.items()}
    assert stand_in_builds.records(RunPaths.below(tmp_path / "run").store) == left
    assert stand_in_builds.records(emulated.store) == left


def test_a_build_whose_pod_is_lost_is_built_again_and_no_other(
    emulated: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FRESH_STEPS, "1")
    tasks = (GraphTask(name="base", shard=0), GraphTask(name="lost", shard=1), GraphTask(name="top", shard=2, after=("lost",)))
    plan = graph_plans.plan(tasks)
    bundle = render(plan, graph_plans.build, Settings(namespace=emulated.where.namespace))
    follower = begin(emulated, plan, bundle, stand_in_builds.program(tmp_path, hold=1))
    until(lambda: stand_in_builds.is_held(tmp_path), "the build that is lost")
    for pod in until(lambda: pods_of(emulated, "lost"), "its pod"):
        emulated.home.ask(functools.partial(delete, path=emulated.home.core("pods", pod)))
    assert phases(ended(follower), tasks) == {each.name: "Succeeded" for each in tasks}
    assert stand_in_builds.started(tmp_path) == [0, 1, 1, 2]
    assert stand_in_builds.records(emulated.store) == {0: "0\n", 1: "0\n", 2: "0\n"}


def delete(kube: Any, path: str) -> None:
    """Delete an object, as an eviction does with a pod."""
    kube.delete(path)


def pods_of(lab: Lab, task: str) -> list[str]:
    """Return the names of the running pods of a task."""
    pods = json.loads(lab.home.fetch(lab.home.core("pods"), {"labelSelector": f"{WORKFLOW_LABEL}=r1"}))["items"]
    running = [pod["metadata"] for pod in pods if pod["status"].get("phase") == "Running"]
    return [meta["name"] for meta in running if f".{task}(" in meta["annotations"][NODE_NAME]]
