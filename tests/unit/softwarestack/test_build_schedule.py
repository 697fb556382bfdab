"""Schedules of random graphs keep their bounds, obey dependencies and slots, and start the longest path first."""

import random

import pytest

from tests.unit.softwarestack.small_locks import DATA, chain, hash_of, lock, spec
from workflows.softwarestack import spack_lock, stack_plan
from workflows.softwarestack.build_graph import BuildGraph, PackageNode
from workflows.softwarestack.build_schedule import BuildSchedule, schedule
from workflows.softwarestack.build_tasks import direct_needs

SEEDS = range(20)
STEP = 1.0
"""Durations are whole seconds, so that a simulation in steps of one second is exact."""


def _graph(seed: int) -> tuple[BuildGraph, dict[str, float]]:
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [hash_of(str(number)) for number in range(chance.randint(1, 40))]
    nodes = {}
    for place, hash_ in enumerate(names):
        needed = tuple(chance.sample(names[:place], min(place, chance.choice([0, 1, 2, 4]))))
        nodes[hash_] = PackageNode(hash_, f"p{place}", "1", "", "", external=False, runtime=needed, build=())
    return BuildGraph("random", nodes, (names[-1],)), {hash_: float(chance.randint(1, 9)) for hash_ in names}


def _simulated(planned: BuildSchedule, slots: int) -> float:
    """Return the makespan by advancing a clock second by second, and check that no build starts too early."""
    ends, clock = dict[str, float](), 0.0
    while len(ends) < len(planned.seconds) or max(ends.values()) > clock:
        for hash_ in planned.by_priority:
            ready = all(ends.get(needed, clock + 1) <= clock for needed in planned.needs[hash_])
            if hash_ not in ends and ready and sum(end > clock for end in ends.values()) < slots:
                ends[hash_] = clock + planned.seconds[hash_]
        clock += STEP
    return clock


@pytest.mark.parametrize("seed", SEEDS)
def test_makespans_keep_their_bounds(seed: int) -> None:
    graph, seconds = _graph(seed)
    planned = schedule(graph, graph.nodes, seconds)
    for slots in (1, 2, 3, 100):
        makespan = planned.makespan(slots)
        assert makespan == _simulated(planned, slots)
        assert planned.bound(slots) <= makespan <= planned.serial
        assert makespan <= planned.critical_path + planned.serial / slots  # Graham's bound of list scheduling
        assert planned.tier_barriers(slots) >= planned.bound(slots)
    assert planned.makespan(1) == planned.serial
    assert planned.makespan(100) == planned.critical_path
    assert sum(seconds[hash_] for hash_ in planned.longest_chain()) == planned.critical_path


@pytest.mark.parametrize("seed", SEEDS)
def test_edges_that_are_left_out_are_implied_by_others(seed: int) -> None:
    graph, seconds = _graph(seed)
    planned = schedule(graph, graph.nodes, seconds)
    direct = direct_needs(planned)

    def behind(hash_: str) -> set[str]:
        return {needed for edge in direct[hash_] for needed in ({edge} | behind(edge))}

    for hash_, needed in planned.needs.items():
        assert set(needed) <= behind(hash_)
        for edge in direct[hash_]:
            assert not any(edge in behind(other) for other in direct[hash_] if other != edge)


def test_a_build_waits_for_what_a_cached_package_needs_when_it_runs() -> None:
    graph = spack_lock.parse(lock(chain(), ["app"]), "spack.lock")
    plan = stack_plan.plan(graph, cached=[hash_of("lib"), hash_of("tool")])
    assert set(plan.builds) == {hash_of("app"), hash_of("base")}
    assert plan.schedule.needs[hash_of("app")] == (hash_of("base"),)


def test_the_longest_path_starts_first() -> None:
    specs = {"root": spec("root", ["llvm", "zlib"]), "llvm": spec("llvm"), "zlib": spec("zlib")}
    plan = stack_plan.plan(spack_lock.parse(lock(specs, ["root"]), "spack.lock"))
    assert [build.node.name for build in plan.ordered] == ["llvm", "zlib", "root"]


def test_a_large_published_lock_is_planned_within_five_percent_of_the_bound() -> None:
    plan = stack_plan.plan(spack_lock.read(DATA / "v5_514specs_slac_lcls.spack.lock"))
    for slots in (4, 16, 64):
        assert plan.schedule.makespan(slots) <= 1.05 * plan.schedule.bound(slots) < plan.schedule.tier_barriers(slots)
