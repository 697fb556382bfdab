"""A plan builds what a stack needs and the cache lacks, and renders small tasks with unique names."""

import re

from tests.unit.softwarestack.small_locks import DATA, chain, hash_of, lock, spec
from workflows.softwarestack import build_tasks, spack_lock, stack_plan
from workflows.softwarestack.stack_plan import StackPlan

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


def test_a_prefix_names_one_package_of_the_lock() -> None:
    first, second = "abcdefgh" + "a" * 24, "abcdefgh" + "b" * 24
    content = lock({"one": spec("one"), "two": spec("two")}, ["one", "two"])
    content = content.replace(hash_of("one").encode(), first.encode()).replace(hash_of("two").encode(), second.encode())
    plan = stack_plan.plan(spack_lock.parse(content, "spack.lock"))
    assert build_tasks.hash_prefixes(plan) == {first: "abcdefgha", second: "abcdefghb"}
