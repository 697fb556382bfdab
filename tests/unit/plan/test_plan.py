"""The plan is pure: same spec, same bytes; a change shows exactly where it is."""

import gzip
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from steps.clients.fleet_folder import is_selected
from steps.contract import fleet as contract
from steps.contract import run_records
from steps.contract.delivery import TREE_FILE, decode_tree, tree_digest
from steps.contract.task import MAX_BYTES, TaskError, Verb, decode
from workflows import examples
from workflows.plan import diff, run_folders, show
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan, PlanError
from workflows.render.steps import DEADLINE_MARGIN
from workflows.spec import load
from workflows.stages import ORDER

ROOT = Path(__file__).parents[3]
TEXT = examples.path("h200-16").read_text()


def plan_of(text: str = TEXT, **options: object) -> Plan:
    return compile_plan(load(text), **options)  # type: ignore[arg-type]


def lease_of(plan: Plan) -> int:
    """Seconds for which the target is reserved after each write."""
    return int(plan.open_task.arguments["lease_seconds"])


@pytest.mark.parametrize("name", examples.names())
def test_every_example_plans_the_same_bytes_twice(name: str) -> None:
    one, two = (compile_plan(load(examples.path(name))) for _ in range(2))
    assert one.digest == two.digest
    assert run_folders.tasks_folder(one) == run_folders.tasks_folder(two)
    assert run_folders.fleet_folder(one.digest, one.hosts) == run_folders.fleet_folder(two.digest, two.hosts)


@pytest.mark.parametrize("before", ["", "import hera.workflows; "], ids=["alone", "after Hera"])
def test_the_digest_does_not_depend_on_what_is_imported(before: str) -> None:
    """Hera changes PyYAML's representers for the whole process, and Helm values are YAML text within a task."""
    said = "from workflows import examples; from workflows.plan.compiler import compile_plan; from workflows.spec import load; "
    script = f"{before}{said}print(compile_plan(load(examples.path('h200-16'))).digest)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == plan_of().digest


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
    with pytest.raises(PlanError, match="'os-prep' is no stage; did you mean os_prep"):
        plan_of(only=["os-prep"])


def test_one_change_changes_only_its_tasks() -> None:
    before, after = plan_of(), plan_of(TEXT.replace("inter_node_floor_gb_s: 350", "inter_node_floor_gb_s: 360"))
    changes = diff.differences(before, after)
    assert changes
    assert all(change.startswith("task validation.") for change in changes), changes
    assert diff.differences(before, before) == ()


def test_a_jump_over_a_major_of_the_gpu_operator_is_refused() -> None:
    old = plan_of(TEXT + "overrides: {gpu_operator: {version: v25.3.4}}\n")
    with pytest.raises(
        PlanError, match=r"gpu_operator cannot go from v25\.3\.4 to v26\.3\.3 in one step: only from 25\.10 or 26\.3"
    ):
        diff.differences(old, plan_of())
    next_one = plan_of(TEXT + "overrides: {gpu_operator: {version: v26.7.0}}\n")
    assert "release gpu_operator: v26.3.3 → v26.7.0" in diff.differences(plan_of(), next_one)
    (apply,) = [task for task in next_one.tasks if (task.stage, task.name) == ("gpu_operator", "apply")]
    assert apply.arguments["upgrade_from"] == {"gpu-operator/gpu-operator": ["26.3", "26.7"]}


def test_a_digest_reaches_the_object_that_installs_the_chart() -> None:
    given = "sha256:" + "a" * 64
    plan = plan_of(TEXT + f"overrides: {{volcano: {{digest: '{given}'}}}}\n")
    (apply,) = [task for task in plan.tasks if (task.stage, task.name) == ("gang", "apply")]
    (chart,) = [one for one in apply.arguments["objects"] if one["kind"] == "HelmChart"]
    assert chart["metadata"]["annotations"] == {"bringup/chart-digest": given}
    (issue,) = [one for one in plan.issues if one.rule == "P15"]
    assert "volcano" not in issue.problem


def test_a_host_s_own_ssh_user_port_and_python_reach_its_play() -> None:
    own = "{gpu007: {ssh_user: ops, ssh_port: 2222, python: /opt/python}}"
    text = TEXT.replace("    gpu: true\n", f"    gpu: true\n    overrides: {own}\n")
    hosts = {host.name: host.variables for host in plan_of(text).hosts}
    assert [hosts["gpu007"][name] for name in ("ssh_user", "ssh_port", "python")] == ["ops", "2222", "/opt/python"]
    assert "ssh_user" not in hosts["gpu008"]


def test_the_machines_of_a_rehearsal_are_those_of_the_spec() -> None:
    text = TEXT.replace('distribution: ubuntu, version: "24.04"', 'distribution: sles, version: "15.7", kernel: "6.4.0"')
    text = text.replace("  driver: operator\n", "  driver: host\n  driver_version: 580.126.20\n").replace(
        "rate_gbit: 400", "rate_gbit: 200"
    )
    assert plan_of(text).built == {
        "os_id": "sles",
        "os_version": "15.7",
        "os_image": "sles 15.7",
        "kernel": "6.4.0",
        "pods": 110,
        "driver_on_host": True,
        "driver": "580.126.20",
        "nics": 8,
        "nic_gbit": 200,
        "pci_nic": "1021",
        "nic_link": "IB",
    }


SUNK = "slurm: {kind: sunk, repo: 'oci://r.example.org/sunk', version: 7.3.0, partitions: [{name: train, groups: gpu}]}\n"
WITHOUT_RELEASE = {"validation/intra", "validation/dcgm", "validation/localise"}
"""Gates that measure the platform as a whole."""


def every_kind_of_spec() -> Iterator[str]:
    for name in examples.names():
        yield examples.path(name).read_text()
    data = yaml.safe_load(TEXT)
    queues = [{"name": "q", "namespace": "a", "gpus": 64}]
    yield yaml.safe_dump(data | yaml.safe_load(SUNK))
    shared = {"sharing": {"mode": "dra"}, "slurm": {"kind": "none"}}
    yield yaml.safe_dump(data | {"scheduler": {"gang": "kai", "quota": "kueue", "queues": queues}} | shared)


@pytest.mark.parametrize("text", list(every_kind_of_spec()))
def test_stages_and_catalog_name_the_same_gates(text: str) -> None:
    """Each gate of a release is one that its stage has, and each gate of a stage with releases judges one of them."""
    plan = plan_of(text)
    for stage in plan.stages:
        named = {gate for release in plan.releases if release.id in stage.releases for gate in release.gates}
        if stage.releases:
            assert named == set(stage.gates) - WITHOUT_RELEASE, stage.id


def test_hosts_added_and_removed_are_named_as_ranges() -> None:
    after = plan_of(TEXT.replace("gpu[001-016]", "gpu[001-015],gpu020").replace("15/16", "all"))
    assert "hosts removed: gpu016" in diff.differences(plan_of(), after)
    assert "hosts added: gpu020" in diff.differences(plan_of(), after)


def test_shards_hold_at_most_fifty_hosts_of_one_role() -> None:
    plan = compile_plan(load(examples.path("multi-rack-232")))
    packed = run_folders.fleet_folder(plan.digest, plan.hosts)
    index = msgspec.json.decode(packed[contract.INDEX], type=contract.Index)
    shards = [contract.decode_hosts(gzip.decompress(packed[contract.shard_file(number)])) for number in range(index.shards)]
    assert sum(map(len, shards)) == index.hosts == len(plan.hosts)
    assert all(len(shard) <= 50 and len({host.role for host in shard}) == 1 for shard in shards)


def test_what_a_person_reads() -> None:
    plan = plan_of()
    assert any("approval before validation: ada@example.org" in line for line in show.outline(plan))
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
    plan = compile_plan(load(examples.path(name)))
    assert lease_of(plan) >= run_records.LEASE_SECONDS
    longest = waited = 0
    for stage in plan.stages:
        waited += stage.approval.timeout_seconds if stage.approval else 0
        for task in (step.task for step in stage.steps):
            longest = max(longest, waited)
            spent = task.deadline_seconds + DEADLINE_MARGIN
            waited = spent if task.verb.value in ("apply", "job", "play") else waited + spent
    assert max(longest, waited) < lease_of(plan)


def test_the_lease_outlives_each_wait_for_a_person_and_the_checks_that_may_be_left_out() -> None:
    without = TEXT[: TEXT.index("approvals:")]
    twice = (
        without
        + "approvals:\n"
        + "".join(f"  - before: {name}\n    approvers: [ada]\n    timeout: 100h\n" for name in ("sharing", "gang"))
    )
    hours = lease_of(plan_of(twice)) / 3600
    assert 206 < hours < 216, "stage sharing writes nothing where its check has too few nodes, so both waits count"
    assert lease_of(plan_of(without)) < 24 * 3600


def test_a_narrowed_plan_names_what_it_leaves_out_before_its_last_stage() -> None:
    assert "left_out" not in plan_of().open_task.arguments
    assert "left_out" not in plan_of(until="sharing").open_task.arguments
    assert plan_of(only=["rke2", "gpu_operator"]).open_task.arguments["left_out"] == ["os_prep", "base_services"]


def test_only_a_plan_that_changes_hosts_asks_the_servers_whose_they_are() -> None:
    assert "ssh" in plan_of(only=["rke2"]).open_task.arguments
    assert "ssh" not in plan_of(only=["gpu_operator"]).open_task.arguments


def tree_of(plan: Plan) -> dict[str, str]:
    """Return the rendered tree, by path, that lies beside the tasks for verb `publish`."""
    return decode_tree(run_folders.tasks_folder(plan)[TREE_FILE])


def test_the_tree_lies_beside_the_tasks_and_its_digest_is_in_them() -> None:
    plan = compile_plan(load(examples.path("multi-rack-232")))
    (publish,) = [task for task in plan.tasks if task.verb is Verb.PUBLISH]
    assert publish.arguments["tree"] == {"file": TREE_FILE, "digest": tree_digest(tree_of(plan))}
    other = compile_plan(load(examples.path("multi-rack-232").read_text() + "\noverrides: {kueue: {values: {a: 1}}}\n"))
    assert publish.input_digest not in {task.input_digest for task in other.tasks}


def test_a_plan_that_publishes_nothing_has_no_tree() -> None:
    assert TREE_FILE not in run_folders.tasks_folder(plan_of())
    assert TREE_FILE not in run_folders.tasks_folder(compile_plan(load(examples.path("multi-rack-232")), only=["gpu_operator"]))


def test_tasks_that_no_config_map_holds_are_refused() -> None:
    text = examples.path("multi-rack-232").read_text() + f"\noverrides: {{kueue: {{values: {VALUES}}}}}\n"
    with pytest.raises(TaskError, match=r"the tasks of multi-rack-232 have \d+ bytes, the largest gitops\.json \d+, limit 900000"):
        run_folders.tasks_folder(compile_plan(load(text)))


VALUES = "{" + ", ".join(f'key{number}: "{"x" * 60_000}"' for number in range(15)) + "}"


def test_a_partition_of_the_second_gpu_group_judges_its_machines_alone() -> None:
    data = yaml.safe_load(TEXT)
    data["hosts"]["more"] = {"role": "agent", "ranges": "x[1-3]", "addresses": {"start": "10.10.2.1"}, "gpu": True}
    data["slurm"]["partitions"] = [{"name": "debug", "groups": "more"}]
    plan = compile_plan(load(yaml.safe_dump(data)), only=["slurm"])
    judge = next(step.task for stage in plan.stages for step in stage.steps if step.task.name == "judge")
    assert judge.arguments["members"] == "group-more"
    assert [host.name for host in plan.hosts if is_selected(host, "group-more")] == ["x1", "x2", "x3"]
    assert [host.name for host in plan.hosts if is_selected(host, "group-more,servers")][:1] == ["sv1"]
