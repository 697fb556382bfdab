"""Batches of random stacks keep every build once, the order of builds, the limits of a DAG and the duration of the stack."""

import json
import random

import pytest

from tests.unit import graph_plans
from tests.unit.softwarestack.matrix_locks import matrix
from tests.unit.softwarestack.small_locks import DATA, hash_of, lock, spec
from workflows.render import graph_tasks
from workflows.render.bundle import render
from workflows.softwarestack import build_batches, build_tasks, spack_lock, stack_plan
from workflows.softwarestack.build_batches import BuildBatches, batches
from workflows.softwarestack.build_schedule import BuildSchedule
from workflows.softwarestack.stack_plan import StackPlan
from workflows.stages.stage import GraphTask

SEEDS = range(12)


def random_schedule(seed: int, most: int = 120) -> BuildSchedule:
    """Builds of which most are short and a few are long, each needing some of the earlier ones."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"b{number}" for number in range(chance.randint(most // 4, most))]
    needs = {
        name: tuple(chance.sample(names[:place], min(place, chance.choice([0, 1, 1, 2, 4])))) for place, name in enumerate(names)
    }
    return BuildSchedule({name: float(chance.choice([5, 5, 10, 60, 600])) for name in names}, needs)


def assert_sound(made: BuildBatches, schedule: BuildSchedule, limit: int) -> None:
    """Check what every consumer relies on: all builds once, needs earlier in the batch or in one listed before, small groups."""
    built = [hash_ for key in made.order for hash_ in made.packages[key]]
    assert sorted(built) == sorted(schedule.seconds)
    batch_of = {hash_: key for key, packages in made.packages.items() for hash_ in packages}
    done = set[str]()
    for key in made.order:
        for hash_ in made.packages[key]:
            assert done.issuperset(schedule.needs[hash_])
            done.add(hash_)
        assert {batch_of[needed] for hash_ in made.packages[key] for needed in schedule.needs[hash_]} - {key} == set(
            made.needs[key]
        )
        assert all(made.group[needed] <= made.group[key] for needed in made.needs[key])
        assert made.seconds[key] == sum(schedule.seconds[hash_] for hash_ in made.packages[key])
    groups = list(made.group.values())
    assert max(map(groups.count, groups)) <= limit


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_of_random_stacks_are_sound_within_any_limit(seed: int) -> None:
    schedule = random_schedule(seed)
    for limit, most, slots in ((15, 200, 4), (15, 200, 0), (10, 25, 8), (1000, 2000, 4)):
        made = batches(schedule, slots, limit, most)
        assert_sound(made, schedule, limit)
        assert len(made.packages) <= max(most, limit)
        assert made.makespan(slots or 64) >= schedule.bound(slots or 64) * 0.999


@pytest.mark.parametrize("seed", SEEDS)
def test_a_contracted_graph_meets_its_limit_however_small(seed: int) -> None:
    schedule = random_schedule(seed, 60)
    for limit in (1, 2, 9):
        made = batches(schedule, 4, limit, most=limit * len(schedule.seconds))
        assert_sound(made, schedule, limit)


def test_a_stack_within_the_limit_has_a_batch_for_each_build() -> None:
    schedule = random_schedule(1)
    made = batches(schedule, 4)
    assert list(made.order) == list(schedule.by_priority)
    assert set(made.packages.values()) == {(hash_,) for hash_ in schedule.seconds}
    assert made.direct == build_tasks.direct_needs(schedule)


def test_light_builds_are_put_together_and_long_ones_stay_alone() -> None:
    seconds = {"compiler": 3600.0, **{f"tiny{number}": 5.0 for number in range(50)}, "application": 7200.0}
    needs = {"compiler": (), **{f"tiny{number}": ("compiler",) for number in range(50)}, "application": ("compiler",)}
    made = batches(BuildSchedule(seconds, needs), 4, limit=10)
    assert len(made.packages) == 10
    assert ("compiler",) in made.packages.values()
    assert ("application",) in made.packages.values()
    assert made.makespan(4) == 3600 + 7200


@pytest.mark.parametrize("slots", [4, 16, 64])
@pytest.mark.parametrize("name", ["v5_514specs_slac_lcls", "v6_213specs_cuda_attention"])
def test_batches_of_published_locks_take_no_longer_than_single_builds(name: str, slots: int) -> None:
    content = (DATA / f"{name}.spack.lock").read_bytes()
    schedule = stack_plan.plan(spack_lock.parse(content, name)).schedule
    made = batches(schedule, slots)
    assert_sound(made, schedule, build_batches.LIMIT)
    assert made.makespan(slots) <= build_batches.TOLERANCE * schedule.bound(slots)


@pytest.mark.parametrize(
    ("compilers", "copies", "slots", "ratio"),
    [(3, 1, 4, 1.05), (3, 1, 16, 1.05), (3, 1, 64, 1.05), (3, 2, 16, 1.05), (5, 4, 16, 1.05)],
)
def test_a_matrix_takes_little_longer_than_it_must(compilers: int, copies: int, slots: int, ratio: float) -> None:
    schedule = stack_plan.plan(spack_lock.parse(matrix(compilers, copies).text().encode(), "synthetic")).schedule
    made = batches(schedule, slots)
    assert_sound(made, schedule, build_batches.LIMIT)
    assert made.makespan(slots) <= ratio * schedule.bound(slots)


def test_limits_are_those_of_rendering() -> None:
    assert build_batches.LIMIT == graph_tasks.MOST_TASKS


def rendered_bytes(plan: StackPlan) -> float:
    """Return the bytes of the rendered WorkflowTemplate for each build, as the API server stores it."""
    made, names = batches(plan.schedule, 16), build_tasks.task_names(plan)
    graph = [
        GraphTask(name=names[key], shard=number, after=tuple(names[needed] for needed in made.direct[key]), group=made.group[key])
        for number, key in enumerate(made.order)
    ]
    template = render(graph_plans.plan(graph, 16), graph_plans.build).template
    return len(json.dumps(template, separators=(",", ":"))) / len(plan.builds)


def test_a_published_lock_takes_200_bytes_a_build_at_most() -> None:
    content = (DATA / "v5_514specs_slac_lcls.spack.lock").read_bytes()
    assert rendered_bytes(stack_plan.plan(spack_lock.parse(content, "lcls"))) <= 200


def test_no_task_begins_with_a_digit() -> None:
    plan = stack_plan.plan(spack_lock.parse(lock({"7zip": spec("7zip")}, ["7zip"]), "digits"))
    assert build_tasks.task_names(plan)[hash_of("7zip")].startswith("p-7zip-")
