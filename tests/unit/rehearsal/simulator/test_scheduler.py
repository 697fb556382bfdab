"""The scheduler's rules, pure and through the API."""

from __future__ import annotations

from typing import Any

import pytest

from steps.contract.node_taints import tolerates
from tests.unit.rehearsal.simulator.harness import Make, User, conditions
from workflows.rehearsal.simulator import virtual_clock
from workflows.rehearsal.simulator.api.api_kinds import NODES, PODS, Obj, Ref
from workflows.rehearsal.simulator.controllers.scheduler import admits, matches_expressions, quantity, requests


@pytest.mark.parametrize(("text", "value"), [("500m", 0.5), ("2Gi", 2**31), ("8", 8), ("1k", 1000), (4, 4), ("1.5", 1.5)])
def test_quantities(text: object, value: float) -> None:
    assert quantity(text) == value


def test_requests_sum_containers_and_take_the_largest_init_container() -> None:
    pod = {
        "spec": {
            "initContainers": [{"resources": {"requests": {"cpu": "4"}}}],
            "containers": [
                {"resources": {"requests": {"cpu": "500m"}, "limits": {"nvidia.com/gpu": "2"}}},
                {"resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}},
            ],
        }
    }
    assert requests(pod) == {"pods": 1, "cpu": 4, "nvidia.com/gpu": 3}


TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "a", "value": "b"}, True),
        ({"key": "a", "value": "c"}, False),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "x", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Obj, expected: bool) -> None:
    assert tolerates([toleration], TAINT) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"key": "n", "operator": "In", "values": ["5", "6"]}, True),
        ({"key": "n", "operator": "NotIn", "values": ["5"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["5"]}, True),
        ({"key": "n", "operator": "Exists"}, True),
        ({"key": "none", "operator": "DoesNotExist"}, True),
        ({"key": "n", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "n", "operator": "Lt", "values": ["4"]}, False),
    ],
)
def test_expressions(expression: Obj, expected: bool) -> None:
    assert matches_expressions({"n": "5"}, [expression]) is expected


def test_a_cordoned_node_takes_daemons_only() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True, "taints": [taint]}}
    assert "unschedulable" in admits(node, {})
    assert admits(node, {}, daemon=True) == ""


@pytest.fixture
def user(make: Make) -> User:
    made = make(agents=2)
    made.bring_up()
    for name in ("gpu000", "gpu001"):
        amounts = {"nvidia.com/gpu": "8"}
        made.api.merge(NODES, Ref("", name), {"status": {"allocatable": amounts, "capacity": amounts}}, "status")
    return made


def pod(user: User, name: str, **spec: Any) -> None:
    body = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]} | spec
    user.api.create(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": body})


def where(user: User) -> dict[str, str]:
    return {found["metadata"]["name"]: found["spec"].get("nodeName", "") for found in user.pods()}


def test_whole_node_pods_fill_the_nodes_and_the_third_waits_with_the_reason(user: User) -> None:
    for name in ("a", "b", "c"):
        pod(user, name)
    user.simulator.advance(20)
    placed = where(user)
    assert sorted(placed.values()) == ["", "gpu000", "gpu001"]
    waiting = next(found for found in user.pods() if not found["spec"].get("nodeName"))
    assert conditions(waiting) == {"PodScheduled": "False"}
    text = waiting["status"]["conditions"][0]["message"]
    assert "0/3 nodes are available" in text
    assert "3 Insufficient nvidia.com/gpu" in text
    user.delete(PODS, next(name for name, node in placed.items() if node == "gpu000"))
    user.simulator.advance(20)
    assert where(user)[waiting["metadata"]["name"]] == "gpu000"


def test_a_pod_is_bound_in_simulated_time_also_before_its_kubelet_reports(user: User) -> None:
    user.simulator.advance(10_000)
    pod(user, "a")
    user.simulator.settle()
    while not where(user)["a"]:
        user.simulator.advance(1)
    (bound,) = user.pods()
    assert bound["status"]["phase"] == "Pending"
    since = virtual_clock.parse_stamp(bound["status"]["conditions"][0]["lastTransitionTime"])
    assert 0 <= user.simulator.world.now - since < 60


def test_a_pod_pinned_by_name_field_goes_there(user: User) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu001"]}]}
    pod(
        user, "pinned", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    )
    user.simulator.advance(20)
    assert where(user) == {"pinned": "gpu001"}


def test_cordoned_and_tainted_nodes_are_left_out(user: User) -> None:
    user.api.merge(NODES, Ref("", "gpu000"), {"spec": {"unschedulable": True}})
    user.api.merge(NODES, Ref("", "gpu001"), {"spec": {"taints": [TAINT]}})
    pod(user, "plain")
    pod(user, "tolerant", tolerations=[{"key": "a", "operator": "Exists"}])
    user.simulator.advance(20)
    assert where(user) == {"plain": "", "tolerant": "gpu001"}
    assert [taint["key"] for taint in user.node("gpu000")["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]


def test_pods_of_another_scheduler_are_left_alone(user: User) -> None:
    pod(user, "gang", schedulerName="volcano")
    user.simulator.advance(60)
    assert where(user) == {"gang": ""}
