"""Nodes that an upgrade does not drain because no other node would take their pods."""

import json
from typing import Any

import pytest
from ansible.module_utils.rke2 import kubectl

from tests.unit.playbooks.library import loaded

GPU, OTHER = ("nvidia.com/gpu", "NoSchedule"), ("nvidia.com/gpu", "PreferNoSchedule")
CONTROL, PRESSURE = ("node-role.kubernetes.io/control-plane", "NoExecute"), ("node.kubernetes.io/disk-pressure", "NoSchedule")
CORDON = ("node.kubernetes.io/unschedulable", "NoSchedule")


def node(name: str, *taints: tuple[str, str], cordoned: bool = False, ready: bool = True) -> dict[str, Any]:
    """A Node as kubectl shows it."""
    spec: dict[str, Any] = {"unschedulable": True} if cordoned else {}
    shown = [{"key": key, "effect": effect} for key, effect in (*taints, *([CORDON] if cordoned else []))]
    spec |= {"taints": shown} if shown else {}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}


class Cluster(kubectl.Kubectl):
    """A kubectl that shows these Nodes, a page each, and writes down what it is told to do."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self.there = {one["metadata"]["name"]: one for one in nodes}
        self.asked: list[str] = []

    def run(self, *words: str, timeout: int = 30) -> str:
        self.asked.append(" ".join(words))
        if "--raw" in words:
            at = int(words[-1].partition("&continue=t%2F")[2] or 0)
            more = {"continue": f"t/{at + 1}"} if at + 1 < len(self.there) else {}
            return json.dumps({"metadata": more, "items": list(self.there.values())[at : at + 1]})
        return json.dumps({"items": [one for name, one in self.there.items() if name in words]}) if words[0] == "get" else ""

    def drained(self, *names: str, returns: bool = True) -> tuple[list[str], list[str]]:
        """Drain nodes by the module and return those that were drained and those that were left alone."""
        wanted = {"state": "drained", "names": list(names), "mark": "v1", "seconds": 60, "returns": returns}
        done = loaded("rke2_nodes").change(self, wanted, check_mode=False)
        assert done["refused"] == {}
        return [line.split()[1] for line in self.asked if line.startswith("drain ")], done["lone"]


@pytest.mark.parametrize(
    ("nodes", "lone"),
    [
        ([node("s1")], True),
        ([node("s1"), node("w1")], False),
        ([node("s1"), node("w1", ready=False)], True),
        ([node("s1"), node("w1", cordoned=True)], True),
        ([node("s1"), node("w1", PRESSURE)], True),
        ([node("s1", PRESSURE), node("w1", PRESSURE)], True),
        ([node("s1"), node("w1", OTHER)], False),
        ([node("s1"), node("s2", CONTROL), node("g1", GPU)], True),
        ([node("s1", GPU), node("g1", GPU)], False),
        ([node("s1", GPU, cordoned=True), node("g1", GPU), node("w1")], False),
        ([node("s1"), node("s2", CONTROL), node("w1")], False),
    ],
    ids=[
        "the only node",
        "another one",
        "it is not ready",
        "it is cordoned",
        "its disk is full",
        "both disks are full",
        "it is left to others where that can be",
        "none but for those that pods must tolerate",
        "of the same kind",
        "was cordoned before",
        "another one on a later page",
    ],
)
def test_a_node_whose_pods_no_other_one_takes_is_not_drained(nodes: list[dict[str, Any]], lone: bool) -> None:
    assert Cluster(*nodes).drained("s1") == (([], ["s1"]) if lone else (["s1"], []))
    assert Cluster(*nodes).drained("s1", returns=False) == (["s1"], []), "a host that is to go lets its pods go, or says why not"


def test_of_those_that_are_drained_together_each_counts_for_the_others() -> None:
    nodes = [node("s1", CONTROL), node("w1", cordoned=True), node("w2", cordoned=True)]
    drained, lone = Cluster(*nodes).drained("w1", "w2", "gone")
    assert (sorted(drained), lone) == (["w1", "w2"], [])


def test_of_many_nodes_no_more_are_read_than_it_takes() -> None:
    cluster = Cluster(*(node(f"n{number}") for number in range(9)))
    nodes = {name: kubectl.facts(cluster.there[name]) for name in ("n0", "n8")}
    assert kubectl.stranded_nodes(nodes, cluster.pages()) == []
    assert cluster.asked == ["get --raw /api/v1/nodes?limit=100", "get --raw /api/v1/nodes?limit=100&continue=t%2F1"]
    assert [len(page) for page in cluster.pages()] == [1] * 9
