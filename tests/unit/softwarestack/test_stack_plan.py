"""A plan builds what a stack needs and the cache lacks, and renders small tasks with unique names."""

import re

from tests.unit import graph_plans
from tests.unit.softwarestack.small_locks import DATA, chain, hash_of, lock
from workflows.render.bundle import render
from workflows.softwarestack import build_tasks, spack_lock, stack_plan
from workflows.softwarestack.stack_plan import StackPlan
from workflows.stages.stage import GraphTask

ARGO_NAME = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]{0,127}")


def _plan(*cached: str, **measured: float) -> StackPlan:
    graph = spack_lock.parse(lock(chain(), ["app"]), "spack.lock")
    return stack_plan.plan(graph, [hash_of(name) for name in cached], measured)


def _names(plan: StackPlan, hashes: tuple[str, ...]) -> list[str]:
    return sorted(plan.graph.nodes[hash_].name for hash_ in hashes)


def test_without_a_cache_all_but_externals_are_built() -> None:
    plan = _plan()
    assert _names(plan, tuple(plan.builds)) == ["app", "base", "lib", "tool"]
    assert _names(plan, plan.externals) == ["libc"]


def test_with_all_in_the_cache_nothing_is_built() -> None:
    plan = _plan("app", "base", "lib", "tool")
    assert not plan.builds
    assert _names(plan, plan.cached) == ["app", "base", "lib"]
    assert _names(plan, plan.unneeded) == ["tool"]


def test_build_dependencies_of_cached_packages_are_not_needed() -> None:
    plan = _plan("app")
    assert _names(plan, tuple(plan.builds)) == ["base", "lib"]
    assert _names(plan, plan.unneeded) == ["tool"]


def test_measured_durations_win_over_estimates_and_hashes_over_names() -> None:
    graph = spack_lock.parse(lock(chain(), ["app"]), "spack.lock")
    plan = stack_plan.plan(graph, measured={"app": 7.0, "lib": 8.0, hash_of("lib"): 9.0})
    seconds = {build.node.name: (build.seconds, build.measured) for build in plan.builds.values()}
    assert seconds["app"] == (7.0, True)
    assert seconds["lib"] == (9.0, True)
    assert seconds["base"][1] is False


def test_tasks_are_small_have_unique_names_and_come_after_what_they_need() -> None:
    for file in ("v5_514specs_slac_lcls.spack.lock", "v5_1238specs_ncar_derecho.spack.lock"):
        plan = stack_plan.plan(spack_lock.read(DATA / file))
        tasks = build_tasks.tasks(plan)
        names = [task["name"] for task in tasks]
        assert len(set(names)) == len(plan.builds)
        assert all(ARGO_NAME.fullmatch(name) for name in names)
        for place, task in enumerate(tasks):
            assert set(task.get("dependencies", ())) <= set(names[:place])
        assert build_tasks.rendered_bytes(plan) <= 200 * len(plan.builds)


def test_tasks_are_those_that_rendering_makes() -> None:
    plan = stack_plan.plan(spack_lock.parse(lock(chain(), ["app"]), "spack.lock"))
    names, needs = build_tasks.task_names(plan), build_tasks.direct_needs(plan.schedule)
    graph = [
        GraphTask(name=names[hash_], shard=number, after=tuple(names[needed] for needed in needs[hash_]))
        for number, hash_ in enumerate(plan.schedule.by_priority)
    ]
    template = render(graph_plans.plan(graph), graph_plans.build).template
    inner = next(entry for entry in template["spec"]["templates"] if entry["name"] == f"{build_tasks.TEMPLATE}-graph")
    assert build_tasks.tasks(plan) == inner["dag"]["tasks"]
