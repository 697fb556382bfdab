"""The plan is pure: same spec, same bytes; a change shows exactly where it is."""

import gzip

import msgspec
import pytest

from steps import timeouts
from steps.contract import fleet as contract
from steps.contract.task import MAX_BYTES, decode
from workflows import examples
from workflows.plan import diff, files, fleet, show
from workflows.plan.compiler import PlanError, compile_plan
from workflows.plan.model import Plan
from workflows.spec import load
from workflows.stages import ORDER

TEXT = examples.path("h200-16").read_text()


def plan_of(text: str = TEXT, **options: object) -> Plan:
    return compile_plan(load(text), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", examples.names())
def test_every_example_plans_the_same_bytes_twice(name: str) -> None:
    one, two = (compile_plan(load(examples.path(name))) for _ in range(2))
    assert one.digest == two.digest
    assert files.tasks_folder(one) == files.tasks_folder(two)
    assert fleet.files(one.digest, one.hosts) == fleet.files(two.digest, two.hosts)


@pytest.mark.parametrize("name", examples.names())
def test_every_task_is_small_and_reads_back(name: str) -> None:
    plan = compile_plan(load(examples.path(name)))
    for file, data in plan.task_files.items():
        assert len(data) <= MAX_BYTES, file
        assert decode(data).input_digest in {task.input_digest for task in plan.tasks}


def test_the_default_example_has_all_stages_in_order_each_with_its_judge_last() -> None:
    plan = plan_of()
    assert [stage.id for stage in plan.stages if stage.id != "sharing"] == [stage for stage in ORDER if stage != "sharing"]
    for stage in plan.stages:
        assert stage.steps[-1].name == "judge"
        assert stage.rollback
        assert stage.changes or stage.rollback == "nothing is changed"
        assert stage.gates


def test_every_planned_release_is_installed_by_a_stage_and_names_its_whole_life() -> None:
    for release in plan_of().releases:
        assert all((release.source, release.namespace, release.rollout, release.health, release.rollback, release.version)), (
            release.id
        )


def test_narrowing() -> None:
    assert [stage.id for stage in plan_of(only=["os_prep"]).stages] == ["os_prep"]
    assert [stage.id for stage in plan_of(until="rke2").stages] == ["os_prep", "rke2"]
    with pytest.raises(PlanError, match="no stage; stages are os_prep"):
        plan_of(only=["os-prep"])


def test_one_change_changes_only_its_tasks() -> None:
    before, after = plan_of(), plan_of(TEXT.replace("inter_node_floor_gb_s: 350", "inter_node_floor_gb_s: 360"))
    changes = diff.differences(before, after)
    assert changes
    assert all(change.startswith("task validation.") for change in changes), changes
    assert diff.differences(before, before) == ()


def test_hosts_added_and_removed_are_named_as_ranges() -> None:
    after = plan_of(TEXT.replace("gpu[001-016]", "gpu[001-015],gpu020").replace("15/16", "all"))
    assert "hosts removed: gpu016" in diff.differences(plan_of(), after)
    assert "hosts added: gpu020" in diff.differences(plan_of(), after)


def test_shards_hold_at_most_fifty_hosts_of_one_role() -> None:
    plan = compile_plan(load(examples.path("multi-rack-232")))
    packed = fleet.files(plan.digest, plan.hosts)
    index = msgspec.json.decode(packed[contract.INDEX], type=contract.Index)
    shards = [contract.decode_hosts(gzip.decompress(packed[contract.shard_file(number)])) for number in range(index.shards)]
    assert sum(map(len, shards)) == index.hosts == len(plan.hosts)
    assert all(len(shard) <= contract.SHARD_SIZE and len({host.role for host in shard}) == 1 for shard in shards)


def test_what_a_person_reads() -> None:
    plan = plan_of()
    assert any("approval before validation: ada@example.org" in line for line in show.tree(plan))
    data = show.to_data(plan)
    assert data["hosts"] == {"count": 19, "ranges": "gpu[001-016],sv[1-3]"}
    assert all(task["inputDigest"].startswith("sha256:") for stage in data["stages"] for task in stage["tasks"])


@pytest.mark.parametrize("name", examples.names())
def test_the_judge_counts_every_task_of_its_stage_in_running_order(name: str) -> None:
    for stage in compile_plan(load(examples.path(name))).stages:
        *steps, judge = stage.steps
        assert [check["task"] for check in judge.task.arguments["checks"]] == [step.name for step in steps]


@pytest.mark.parametrize("name", examples.names())
def test_the_target_s_lease_outlives_what_may_happen_between_two_writes(name: str) -> None:
    longest = waited = 0
    for task in compile_plan(load(examples.path(name))).tasks:
        waited = task.deadline_seconds if task.verb.value in ("apply", "job", "play") else waited + task.deadline_seconds
        longest = max(longest, waited)
    assert longest < timeouts.TARGET_LEASE
