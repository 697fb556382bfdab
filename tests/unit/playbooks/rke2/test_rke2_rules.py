"""Rules that the modules for RKE2 keep on the node: which releases may follow which, and when etcd can spare a server."""

from typing import Any

import pytest
from ansible.module_utils.rke2 import kubectl, rke2_versions, supervisor, traces


@pytest.mark.parametrize(
    ("installed", "wanted", "why"),
    [
        ("", "v1.35.7+rke2r1", ""),
        ("v1.35.7+rke2r1", "v1.35.7+rke2r1", ""),
        ("v1.35.7+rke2r1", "v1.35.7+rke2r2", ""),
        ("v1.34.10+rke2r1", "v1.35.7+rke2r1", ""),
        ("v1.35.7-rc1+rke2r1", "v1.35.7+rke2r1", ""),
        ("v1.35.7+rke2r2", "v1.35.7+rke2r1", "not downgraded in place"),
        ("v1.35.7+rke2r1", "v1.35.7-rc1+rke2r1", "not downgraded in place"),
        ("v1.33.5+rke2r1", "v1.35.7+rke2r1", "upgrade to a v1.34 release first"),
        ("v1.35.7+rke2r1", "v1.36.0", "no version of RKE2"),
        ("v1.35.7+k3s1", "v1.36.0+rke2r1", "reset the host first"),
    ],
)
def test_a_release_follows_the_one_before_it(installed: str, wanted: str, why: str) -> None:
    said = rke2_versions.refusal(installed, wanted)
    assert (why in said) if why else said == ""


def test_agents_are_never_newer_than_a_server_and_nodes_never_too_old_for_one() -> None:
    servers = {"s1": "v1.35.7+rke2r1", "s2": "v1.34.9+rke2r1"}
    assert rke2_versions.agent_refusal("v1.34.10+rke2r1", servers) == ""
    assert rke2_versions.agent_refusal("v1.35.7+rke2r1", servers).startswith("server s2 runs v1.34.9+rke2r1")
    assert rke2_versions.server_refusal("v1.36.0+rke2r1", {"w1": "v1.33.1+rke2r1"}) == ""
    assert rke2_versions.server_refusal("v1.37.0+rke2r1", {"w1": "v1.33.1+rke2r1"}).startswith("node w1 runs v1.33.1+rke2r1")


def server(*, voter: bool | None = True, ready: bool = True) -> dict[str, Any]:
    return {"voter": voter, "ready": ready}


@pytest.mark.parametrize(
    ("servers", "needs"),
    [
        ({"s1": server()}, ""),
        ({"s1": server(), "s2": server(), "s3": server()}, ""),
        ({"s1": server(), "s2": server(), "s3": server(ready=False)}, "etcd needs 2 of 3 members and would have 1 without s1 (s2)"),
        ({"s1": server(), "s2": server(voter=False), "s3": server()}, "would have 1 without s1 (s3)"),
        ({"s1": server(), "s2": server()}, "would have 1 without s1"),
        ({"s1": server(), "cp2": server(voter=None)}, ""),
    ],
)
def test_a_server_stops_only_where_etcd_keeps_its_majority(servers: dict[str, Any], needs: str) -> None:
    said = kubectl.majority_refusal(servers, "s1")
    assert (needs in said) if needs else said == ""


def test_the_parts_of_a_token() -> None:
    secure = "K10" + "5" * 64 + "::server:pass"
    assert (supervisor.password(secure), supervisor.ca_hash(secure)) == ("pass", "5" * 64)
    assert (supervisor.password("K10short"), supervisor.ca_hash("K10short")) == ("K10short", "")
    assert supervisor.host("fd00::1") == "[fd00::1]"


@pytest.mark.parametrize(
    "link", ["cni0", "flannel.1", "flannel-wg", "cali0a1b2c3d4e5", "cilium_host", "vxlan.calico", "kube-ipvs0"]
)
def test_links_of_network_plugins_are_known(link: str) -> None:
    assert traces.LINKS.fullmatch(link)


@pytest.mark.parametrize("link", ["eth0", "lo", "bond0", "ib0", "calibration0", "docker0", "enp1s0f0np0", "br-lab"])
def test_links_of_the_machine_are_left_alone(link: str) -> None:
    assert not traces.LINKS.fullmatch(link)


@pytest.mark.parametrize(
    "rule", [":KUBE-SERVICES - [0:0]", "-A CNI-HOSTPORT-DNAT -j X", "-A FORWARD -j cali-FORWARD", ":FLANNEL-POSTRTG"]
)
def test_rules_of_kubernetes_are_known(rule: str) -> None:
    assert traces.RULE.search(rule)


def test_rules_of_the_machine_are_left_alone() -> None:
    assert not traces.RULE.search("-A INPUT -s 10.0.0.0/8 -p tcp --dport 22 -j ACCEPT")


def test_a_host_of_another_cluster_is_not_taken_away_from_it() -> None:
    ours, renewed, other = (f"K10{cluster * 64}::server:{secret}" for cluster, secret in (("5", "a"), ("5", "b"), ("7", "a")))
    assert "part of another cluster" in supervisor.token_refusal(other, ours, "agent")
    assert "part of another cluster" in supervisor.token_refusal(other, ours, "server")
    assert "another token than rke2.join_token" in supervisor.token_refusal(ours, renewed, "server")
    for there, joined in ((renewed, "agent"), (ours, "server"), (other, ""), ("", "agent"), ("a", "server")):
        assert supervisor.token_refusal(there, ours, joined) == ""


class Stuck(kubectl.Kubectl):
    """Nodes of which some never let their pods go; what was asked of each, without a real kubectl."""

    def __init__(self, stuck: set[str], said: str) -> None:
        self.stuck, self.said = stuck, said
        self.asked: list[tuple[str, int]] = []
        self.cordoned: list[str] = []

    def cordon(self, name: str, mark: str) -> None:
        assert not self.asked, "all are cordoned before the first is drained"
        self.cordoned.append(f"{name} {mark}")

    def drain(self, name: str, seconds: int) -> None:
        self.asked.append((name, seconds))
        if name in self.stuck:
            raise kubectl.KubectlError(self.said)


def test_nodes_that_do_not_let_go_take_no_time_from_those_that_do() -> None:
    names = [f"n{number:02d}" for number in range(50)]
    nodes = Stuck(set(names[:25]), "error when evicting pods/web-0: would violate the pod's disruption budget")
    refused = kubectl.drain(nodes, names, "v1", names[1:], 600)
    assert sorted(refused) == names[:25]
    assert sorted(nodes.cordoned) == [f"{name} v1" for name in names[1:]]
    assert sorted(nodes.asked) == [(name, 60) for name in names], "five rounds of ten, each twice if need be, fit into 600 s"


def test_a_drain_that_ran_out_of_its_turn_has_another_until_all_time_is_used() -> None:
    names = [f"n{number:02d}" for number in range(11)]
    nodes = Stuck({"n03"}, "global timeout reached: 1s")
    refused = kubectl.drain(nodes, names, "v1", names, 1)
    assert list(refused) == ["n03"]
    assert len([name for name, _ in nodes.asked if name == "n03"]) > 1
    assert {seconds for _, seconds in nodes.asked} == {1}
    few = Stuck(set(), "")
    assert kubectl.drain(few, ["a", "b"], "v1", [], 600) == {}
    assert few.asked == [("a", 600), ("b", 600)]
