"""Graphs of builds on the embedded engine: omitted dependents, order, limits, retries, groups, and resume after kill -9."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit import graph_plans, stand_in_builds
from tests.unit.simulated_builds import simulate
from workflows.engines import launch
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import News, NodeNews, RunResult, record
from workflows.render.bundle import Bundle, render
from workflows.softwarestack import build_batches
from workflows.softwarestack.build_schedule import BuildSchedule
from workflows.stages.stage import GraphTask

SEED = 7
BASE = (
    GraphTask(name="long", shard=0),
    GraphTask(name="broken", shard=1),
    GraphTask(name="alone", shard=2),
    GraphTask(name="above", shard=3, after=("broken",)),
    GraphTask(name="top", shard=4, after=("long", "above")),
    GraphTask(name="other", shard=5, after=("long",)),
)


def rendered(*graph: GraphTask, parallelism: int = 0) -> Bundle:
    return render(graph_plans.plan(graph, parallelism), graph_plans.build)


def test_a_failed_build_omits_its_dependents_alone_and_the_judge_judges() -> None:
    course = simulate(rendered(*BASE), {0: 9.0}, lambda shard, attempt: 65 if shard == 1 else 0)
    phases = course.phases()
    builds = {task.name: phases[task.name] for task in BASE}
    assert builds == {
        **dict.fromkeys(("long", "alone", "other"), "Succeeded"),
        "broken": "Failed",
        **dict.fromkeys(("above", "top"), "Omitted"),
    }
    assert phases["judge"] == "Succeeded"
    assert course.state.phase == "Succeeded"  # the stage's judge alone decides


def test_ready_builds_start_in_the_order_of_the_manifest_within_the_limit_of_the_stage() -> None:
    graph = [GraphTask(name=f"p{number}", shard=number) for number in range(6)]
    # ready long after all others, and the first of them to start
    graph.insert(1, GraphTask(name="urgent", shard=6, after=("p0",)))
    course = simulate(rendered(*graph, parallelism=2), {number: float(number + 1) for number in range(7)})
    assert course.most == 2
    assert course.started == ["p0", "p1", "urgent", "p2", "p3", "p4", "p5"]


def test_only_what_may_pass_is_tried_again() -> None:
    codes = {0: [75, 75, 0], 1: [65], 2: [75] * 9}
    graph = [GraphTask(name=f"p{number}", shard=number) for number in codes]
    course = simulate(rendered(*graph), {}, lambda shard, attempt: codes[shard][attempt])
    assert [course.started.count(task.name) for task in graph] == [3, 1, 4]
    assert [course.phases()[task.name] for task in graph] == ["Succeeded", "Failed", "Failed"]


def test_a_group_starts_whatever_became_of_the_groups_before_and_the_whole_run_has_one_limit() -> None:
    first = [GraphTask(name=f"a{number}", shard=number) for number in range(5)]
    second = [GraphTask(name=f"b{number}", shard=5 + number, group=1) for number in range(5)]
    third = [GraphTask(name=f"c{number}", shard=10 + number, after=("a0",), group=2) for number in range(2)]
    made = rendered(*first, *second, *third, parallelism=3)
    course = simulate(made, dict.fromkeys(range(12), 1.0), lambda shard, attempt: 65 if shard == 0 else 0)
    phases = course.phases()
    assert (phases["a0"], phases["c0"], phases["c1"], phases["judge"]) == ("Failed", *["Succeeded"] * 3)
    assert course.most == 3


def test_the_duration_that_is_foretold_for_groups_is_that_of_the_engine() -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    hashes = [f"b{number}" for number in range(60)]
    needs = {
        hash_: tuple(chance.sample(hashes[:place], min(place, chance.choice([0, 1, 2])))) for place, hash_ in enumerate(hashes)
    }
    schedule = BuildSchedule({hash_: float(chance.randint(1, 90)) for hash_ in hashes}, needs)
    for limit in (100, 30, 7):
        made = build_batches.batches(schedule, 4, limit, 60)
        graph = [
            GraphTask(name=key, shard=number, after=made.direct[key], group=made.group[key])
            for number, key in enumerate(made.order)
        ]
        course = simulate(rendered(*graph, parallelism=4), {number: made.seconds[key] for number, key in enumerate(made.order)})
        assert len(course.started) == len(graph)
        assert course.clock == pytest.approx(made.makespan(4), rel=0.1)


@pytest.mark.parametrize(("limit", "groups", "slots"), [(0, 1, 8), (3, 1, 8), (40, 1, 40), (40, 2, 40)])
def test_as_many_builds_run_at_once_as_their_stage_allows(limit: int, groups: int, slots: int) -> None:
    graph = [GraphTask(name=f"p{number}", shard=number, group=number % groups) for number in range(4)]
    assert launch.slots(rendered(*graph, parallelism=limit).template) == slots


@pytest.fixture
def made() -> Bundle:
    return rendered(*BASE, parallelism=2)


def engine(made: Bundle, run_dir: Path, python: Path, observer: Callable[[News], None] | None = None) -> LocalEngine:
    manifest = {**made.workflow, "metadata": {**made.workflow["metadata"], "name": "wf"}}
    environment = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    templates = {made.template["metadata"]["name"]: made.template}
    return LocalEngine(run_dir, manifest, templates, environment, observer=observer, grace=1.0)


def shape(result: RunResult) -> dict[str, str]:
    return {node["name"]: node["phase"] for node in record(result)["nodes"]}


def test_a_graph_runs_in_processes_with_their_shards(made: Bundle, tmp_path: Path) -> None:
    python = stand_in_builds.program(tmp_path, fail=(1,))
    result = engine(made, tmp_path / "run", python).run()
    assert stand_in_builds.started(tmp_path) == [0, 1, 2, 5]
    assert shape(result)["top"] == "Omitted"


def test_a_resumed_run_builds_what_had_not_ended_and_nothing_twice(
    made: Bundle, tmp_path: Path, fork: Callable[[Callable[[], int]], Any]
) -> None:
    python = stand_in_builds.program(tmp_path, fail=(1,))
    whole = shape(engine(made, tmp_path / "whole", python).run())
    stand_in_builds.forget(tmp_path)

    def die(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.path.endswith("package.broken") and news.node.phase == "Failed":
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> int:
        engine(made, tmp_path / "run", python, die).run()
        return 0

    assert fork(work).wait() == -signal.SIGKILL
    environment = {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    assert shape(LocalEngine.resume(tmp_path / "run", environment)) == whole
    again = stand_in_builds.started(tmp_path)
    assert set(again) == {0, 1, 2, 5}
    assert again.count(1) == 1  # it had ended before the engine died
