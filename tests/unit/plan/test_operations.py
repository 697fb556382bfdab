"""Plans of operations on a cluster that stands: what they touch, what their judges ask for, and what they refuse."""

from typing import Any

import pytest
import yaml

from steps.contract.runs.operation import Operation, OperationKind
from workflows import examples, spec
from workflows.plan import run_folders
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan, PlanError


def cluster(**changes: Any) -> spec.ClusterSpec:
    written = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader) | changes
    return spec.load(yaml.safe_dump(written))


def planned(kind: OperationKind, *hosts: str, until: str = "rke2", **changes: Any) -> Plan:
    operation = Operation(kind=kind, hosts=frozenset(hosts))
    return compile_plan(cluster(**changes), until="" if kind is OperationKind.RESET else until, operation=operation)


def arguments(plan: Plan, stage: str, name: str) -> dict[str, Any]:
    return next(task.arguments for task in plan.tasks if (task.stage, task.name) == (stage, name))


def test_only_the_added_hosts_are_touched_and_the_os_is_judged_by_them_alone() -> None:
    plan = planned(OperationKind.ADD_NODE, "gpu015", "gpu016")

    assert [host.name for host in plan.hosts if not host.untouched] == ["gpu015", "gpu016"]
    judge = arguments(plan, "os_prep", "judge")
    assert (judge["members"], judge["required"], judge["needed"]) == ("touched-agent", "touched-server", 2)
    assert [check["select"] for check in judge["checks"]] == ["touched-all"]


def test_the_servers_are_only_read_and_every_node_is_judged_when_hosts_are_added() -> None:
    plan = planned(OperationKind.ADD_NODE, "gpu016")

    servers = arguments(plan, "rke2", "servers")
    assert servers["everyone"] is True
    assert servers["variables"]["rke2_untouched"] == ["sv1", "sv2", "sv3"]
    judge = arguments(plan, "rke2", "judge")
    selected = {check["task"]: check.get("select", "") for check in judge["checks"]}
    assert (selected["servers"], selected["agents"], selected["nodes"]) == ("server", "touched-agent", "")
    assert judge["members"] == "agent"
    assert arguments(plan, "run", "open")["needs_running_cluster"] is True


def test_a_replaced_host_is_forgotten_before_it_joins() -> None:
    plan = planned(OperationKind.REPLACE_NODE, "gpu007")

    assert arguments(plan, "rke2", "agents")["variables"]["rke2_replaced"] == ["gpu007"]
    assert arguments(plan, "rke2", "servers")["variables"].get("rke2_replaced", []) == []


def test_the_rollback_of_an_upgrade_says_where_the_snapshot_lies_and_what_is_done_with_it() -> None:
    plan = planned(OperationKind.UPGRADE)

    told = next(stage.rollback for stage in plan.stages if stage.id == "rke2")
    assert "write the release before into rke2.version, and `bringup rollback SPEC`" in told
    assert "/var/lib/rancher/rke2/server/db/snapshots/bringup-before-v1.35.7-rke2r1-*" in told
    assert next(stage.rollback for stage in planned(OperationKind.BRINGUP).stages if stage.id == "rke2").startswith(
        "`bringup reset SPEC`"
    )


def test_a_rollback_has_playbooks_of_its_own_and_takes_a_cluster_that_is_down() -> None:
    plan = planned(OperationKind.ROLLBACK)

    servers, agents = arguments(plan, "rke2", "servers"), arguments(plan, "rke2", "agents")
    assert (servers["playbook"], agents["playbook"]) == ("rke2_server_rollback", "rke2_agent_rollback")
    assert servers["may_be_down"] is True
    assert "needs_running_cluster" not in arguments(plan, "run", "open")
    assert next(stage.rollback for stage in plan.stages if stage.id == "rke2").endswith("`bringup upgrade SPEC`")


def test_a_whole_bring_up_says_nothing_of_operations() -> None:
    plan = compile_plan(cluster(), until="rke2")

    assert not any(host.untouched for host in plan.hosts)
    assert "operation" not in arguments(plan, "run", "open")
    assert "everyone" not in arguments(plan, "rke2", "servers")


def test_an_operation_is_part_of_the_digest_and_of_the_header() -> None:
    plans = [
        planned(OperationKind.ADD_NODE, "gpu016"),
        planned(OperationKind.ADD_NODE, "gpu015"),
        planned(OperationKind.REPLACE_NODE, "gpu016"),
    ]

    assert len({plan.digest for plan in plans}) == 3
    assert arguments(plans[0], "run", "open")["operation"] == "add-node gpu016"


def test_a_reset_takes_the_agents_first_and_asks_for_every_one() -> None:
    plan = planned(OperationKind.RESET)

    assert [stage.id for stage in plan.stages] == ["reset"]
    assert [step.name for step in plan.stages[0].steps] == ["agents", "servers", "judge"]
    assert plan.stages[0].steps[1].after == ("agents",)
    assert arguments(plan, "reset", "judge")["needed"] == 16
    assert arguments(plan, "reset", "agents")["variables"]["rke2_reset_forget"] is False
    assert plan.starts is None


def test_few_shards_at_a_time_ask_the_server_that_stays() -> None:
    some, every = planned(OperationKind.RESET, "gpu001", "gpu002"), planned(OperationKind.RESET)
    assert (some.stages[0].parallelism, every.stages[0].parallelism) == (2, 0), "where none stays, none is asked"


def test_a_reset_of_some_agents_lets_a_server_forget_them() -> None:
    plan = planned(OperationKind.RESET, "gpu001", "gpu002")

    assert [step.name for step in plan.stages[0].steps] == ["agents", "judge"]
    told = arguments(plan, "reset", "agents")
    assert told["helpers"] == "server"
    assert told["variables"] == {
        "rke2_reset_forget": True,
        "rke2_reset_servers": ["10.10.0.10", "10.10.0.11", "10.10.0.12", "10.10.0.13"],
        "rke2_reset_pods": "10.42.0.0/16",
        "rke2_reset_drain_seconds": 600,
        "rke2_registration_address": "10.10.0.10",
    }
    judge = arguments(plan, "reset", "judge")
    assert (judge["needed"], judge["checks"][0]["select"]) == (2, "touched-agent")


@pytest.mark.parametrize(
    ("kind", "hosts", "said"),
    [
        (OperationKind.ADD_NODE, ["gpu99"], "gpu99 is not among the hosts of h200-16"),
        (OperationKind.RESET, ["sv1"], "reset of sv1 alone would leave 2 of 3 servers"),
        (OperationKind.REPLACE_NODE, ["sv1", "sv2"], "replacing 2 of 3 servers leaves etcd without a majority"),
    ],
)
def test_what_would_break_the_cluster_is_refused(kind: OperationKind, hosts: list[str], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        planned(kind, *hosts)


def test_untouched_hosts_stay_in_the_files_of_the_fleet() -> None:
    plan = planned(OperationKind.ADD_NODE, "gpu016")

    assert [len(shard) for shard in run_folders.shards(plan.hosts)] == [3, 16]
