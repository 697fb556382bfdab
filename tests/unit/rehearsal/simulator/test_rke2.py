"""RKE2 as the probes see it, healthy and under each fault of the stage; and the fault registry."""

from __future__ import annotations

import json

import pytest

from steps.clients.kube.client import Kube
from steps.contract.host_play import HostOutcome, HostStatus
from steps.contract.verdict import Status, Verdict
from steps.stages.rke2 import gate as gates
from steps.stages.rke2 import probe as rke2
from steps.stages.rke2.contract import (
    ControlExpectation,
    EtcdLimits,
    FunctionalExpectation,
    HostNetworkExpectation,
    NodesExpectation,
    PlayExpectation,
    RegisteredNode,
    RegistrationGroup,
)
from steps.stages.shared.kube_reader import Scope
from tests.unit.rehearsal.simulator.harness import Make, User, conditions
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.simulator.api.api_kinds import NAMESPACES, NODES, Obj
from workflows.stages import manifest_objects

VERSION = "v1.34.10+rke2r2"


LABELS = {"site/pool": "train"}
INGRESS_PODS = "app.kubernetes.io/name=rke2-ingress-nginx,app.kubernetes.io/component=controller"

OUTSIDE = "charts.example.com"
OUTSIDE_ENTRY = {"name": "OUTSIDE", "value": OUTSIDE}


def up(make: Make, *faults: str, agents: int = 3, servers: int = 3) -> User:
    user = make(agents=agents, servers=servers, faults=[(name, ()) for name in faults])
    labels = {"gp": ["site/pool=train"], "cp": ["site/pool=train"]}
    user.play("rke2_server", rke2_version=VERSION, rke2_node_labels=labels)
    user.play("rke2_agent", rke2_version=VERSION, rke2_node_labels=labels)
    user.simulator.advance(400)
    return user


def nodes(user: User) -> dict[str, RegisteredNode]:
    scope = Scope(nodes=tuple(host.name for host in user.world.fleet), now=user.world.now)
    return {node.name: node for node in rke2.nodes(Kube.from_file(user.kubeconfig), scope).nodes}


def played(user: User) -> Verdict:
    """The verdict on the servers, played once more."""
    events = user.play("rke2_server", rke2_version=VERSION)
    told = {data["host"]: data["res"] for data in (event["event_data"] for event in events) if "observation" in data.get("res", {})}
    outcomes = [HostOutcome(host=name, status=HostStatus.OK, facts=res["observation"]) for name, res in told.items()]
    want = PlayExpectation(version=VERSION, service="rke2-server", nodes=tuple(told), etcd=EtcdLimits())
    return gates.servers(rke2.from_play(outcomes), want)


def judge(user: User) -> dict[str, Verdict]:
    """The verdicts of the stage's gates on servers and on the API."""
    kube = Kube.from_file(user.kubeconfig)
    every = tuple(host.name for host in user.world.fleet)
    servers = tuple(host.name for host in user.world.fleet if host.role == "server")
    dns(user)
    host(user)
    now = user.world.now
    control = ControlExpectation(nodes=servers, workloads=("Deployment rke2-coredns-rke2-coredns", "DaemonSet rke2-canal"))
    asked = {"labels": list(LABELS), "network_pods": "k8s-app=canal", "ingress_pods": INGRESS_PODS}
    scope = Scope(nodes=every, now=now, arguments=asked)
    groups = {"all": RegistrationGroup(hosts=",".join(every), labels=LABELS)}
    return {
        "rke2/servers": played(user),
        "rke2/control": gates.control(rke2.control(kube, Scope(nodes=servers, now=now)), control),
        "rke2/nodes": gates.nodes(
            rke2.nodes(kube, scope), NodesExpectation(nodes=every, version=VERSION, groups=groups, network="canal")
        ),
        "rke2/host_network": gates.host_network(
            rke2.host_network(kube, scope), HostNetworkExpectation(nodes=servers, outside=OUTSIDE)
        ),
        "rke2/functional": gates.functional(
            rke2.functional(kube, scope), FunctionalExpectation(nodes=every, ingress=True, outside=(OUTSIDE,))
        ),
    }


def host(user: User) -> None:
    """Run check `host` on the servers, and the pods behind the Service that it asks."""
    servers = [entry.name for entry in user.world.fleet if entry.role == "server"]
    for check, names in (("answer", [entry.name for entry in user.world.fleet][:3]), ("host", servers)):
        spec = {"completions": len(names), "parallelism": len(names), "completionMode": "Indexed", "backoffLimitPerIndex": 0}
        container = {"name": "check", "image": "i", "env": [OUTSIDE_ENTRY]}
        affinity = manifest_objects.one_a_node({"bringup/check": check}, manifest_objects.HOSTNAME, names)
        pod = {"affinity": affinity, "containers": [container], "tolerations": [{"operator": "Exists"}]}
        user.job(check, check=check, spec=spec, pod=pod, namespace="bringup-check")
        user.simulator.advance(30)


def dns(user: User) -> dict[str, Obj]:
    """Reports of the check, run in its namespace, by node."""
    anti = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"bringup/check": "dns"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}
    count = len(user.world.fleet)
    spec = {"completions": count, "parallelism": count, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    user.api.create(NAMESPACES, {"metadata": {"name": "bringup-check"}})
    container = {"name": "check", "image": "i", "env": [{"name": "INGRESS_HOST", "value": "h"}, OUTSIDE_ENTRY]}
    user.job("dns", check="dns", spec=spec, pod={"affinity": affinity, "containers": [container]}, namespace="bringup-check")
    user.simulator.advance(60)
    states = [pod["status"]["containerStatuses"][0]["state"] for pod in user.pods("bringup-check", labels="bringup/check=dns")]
    reports = [json.loads(state["terminated"]["message"]) for state in states if "terminated" in state]
    return {report["node"]: report for report in reports}


def test_an_upgrade_that_leaves_the_ingress_controller_open_does_not_begin(make: Make) -> None:
    user = up(make)
    newer = {"rke2_version": "v1.36.1+rke2r1"}
    failed = [one["event_data"] for one in user.play("rke2_server", **newer) if one["event"] == "runner_on_failed"]
    assert [data["host"] for data in failed] == ["cp00", "cp01", "cp02"]
    assert f"which runs {VERSION}, would keep ingress-nginx: write ingress_controller" in failed[0]["res"]["msg"]
    named = user.play("rke2_server", **newer, rke2_ingress_controller="ingress-nginx")
    assert [one for one in named if one["event"] == "runner_on_failed"] == []


def test_a_healthy_cluster_as_the_probe_reads_it(make: Make) -> None:
    user = up(make)
    found = nodes(user)
    assert len(found) == 6
    assert {(node.ready, node.version, node.taints) for node in found.values()} == {("True", VERSION, ())}
    assert all(user.world.now - node.seen < 60 for node in found.values())
    assert found["gpu000"].address == "10.1.0.4"
    assert conditions(user.node("cp02"))["EtcdIsVoter"] == "True"
    static = {pod["metadata"]["name"]: conditions(pod)["Ready"] for pod in user.pods("kube-system", labels="tier=control-plane")}
    assert static["etcd-cp01"] == static["kube-apiserver-cp02"] == "True"
    assert all(report["reached"] and report["resolved"] and not report["error"] for report in dns(user).values())


def test_all_gates_pass_on_a_healthy_cluster(make: Make) -> None:
    assert {gate: verdict.status for gate, verdict in judge(up(make)).items() if not verdict.is_pass} == {}


CAUGHT = [fault for fault in fault_registry.faults() if fault.stage == "rke2" and fault.name != "join_refused"]


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("fault", CAUGHT, ids=lambda fault: fault.name)
def test_each_fault_is_caught_by_its_gate_and_by_no_earlier_one(make: Make, fault: fault_registry.Fault) -> None:
    verdicts = judge(up(make, fault.name))
    assert verdicts[fault.gate].status in (Status.FAIL, Status.INCONCLUSIVE), verdicts[fault.gate].reason
    order = list(verdicts)
    for earlier in order[: order.index(fault.gate)]:
        assert verdicts[earlier].is_pass, verdicts[earlier].reason


def test_labels_taints_and_cni_come_from_the_plays_variables(make: Make) -> None:
    user = make(agents=1, servers=1)
    cni = ["multus", "cilium"]
    user.play("rke2_server", rke2_cni=cni, rke2_node_taints={"cp": ["CriticalAddonsOnly=true:NoExecute"]})
    user.play("rke2_agent", rke2_cni=cni, rke2_node_labels={"gp": ["site=lab"]}, rke2_host_labels={"gpu000": ["rack=7"]})
    user.simulator.advance(400)
    labels = user.node("gpu000")["metadata"]["labels"]
    assert (labels["site"], labels["rack"]) == ("lab", "7")
    assert nodes(user)["cp00"].taints == ("CriticalAddonsOnly=true:NoExecute",)
    assert nodes(user)["gpu000"].ready == "True"


def test_a_node_that_is_deleted_registers_again(make: Make) -> None:
    user = up(make, agents=1, servers=1)
    user.delete(NODES, "gpu000", "")
    user.simulator.advance(100)
    assert nodes(user)["gpu000"].ready == "True"


def test_join_refused_fails_the_play_and_registers_nothing(make: Make) -> None:
    user = make(agents=3, faults=[("join_refused", ())])
    user.play("rke2_server")
    events = user.play("rke2_agent")
    failed = [event["event_data"] for event in events if event["event"] == "runner_on_failed"]
    assert [data["host"] for data in failed] == ["gpu000", "gpu001"]
    assert "token CA hash" in failed[0]["res"]["msg"]
    user.simulator.advance(400)
    assert set(nodes(user)) == {"cp00", "gpu002"}


def test_etcd_member_missing(make: Make) -> None:
    user = up(make, "etcd_member_missing")
    assert nodes(user)["cp00"].ready == "True"
    assert conditions(user.node("cp00"))["EtcdIsVoter"] == "False"
    (pod,) = [found for found in user.pods("kube-system", labels="component=etcd") if found["spec"]["nodeName"] == "cp00"]
    assert conditions(pod)["Ready"] == "False"


def test_coredns_not_ready(make: Make) -> None:
    user = up(make, "coredns_not_ready")
    found = user.pods("kube-system", labels="k8s-app=kube-dns")
    assert {(pod["status"]["phase"], conditions(pod)["Ready"]) for pod in found} == {("Running", "False")}


def test_node_not_ready_and_its_end(make: Make) -> None:
    user = up(make, "node_not_ready")
    found = nodes(user)
    assert [name for name, node in found.items() if node.ready != "True"] == ["gpu000", "gpu001"]
    assert "cni plugin not initialized" in found["gpu000"].message
    user.world.set_faults([])
    user.simulator.advance(60)
    assert {node.ready for node in nodes(user).values()} == {"True"}


def test_kubelet_version_skew(make: Make) -> None:
    user = up(make, "kubelet_version_skew")
    assert [node.version for node in nodes(user).values()] == [VERSION] * 3 + ["v1.34.9+rke2r1"] * 2 + [VERSION]


def test_dns_broken(make: Make) -> None:
    assert {(report["resolved"], report["error"][:6]) for report in dns(up(make, "dns_broken")).values()} == {("", "nslook")}


def test_overlay_broken(make: Make) -> None:
    reports = dns(up(make, "overlay_broken"))
    assert [name for name, report in sorted(reports.items()) if not report["reached"]] == ["cp02", "gpu000", "gpu001"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kube_proxy_rules_missing", "a Service does not answer by its address here, and pods reach each other by theirs"),
        ("dns_dead_on_nodes", "kubernetes.default resolves to nothing"),
        ("ingress_dead", "the ingress controller of this node brings no answer on port 80"),
    ],
)
def test_causes_of_a_silent_service_are_told_apart(make: Make, fault: str, said: str) -> None:
    """On the same two nodes, which are neighbours: each is named with its cause, and the others pass."""
    verdict = judge(up(make, fault))["rke2/functional"]
    assert {row.node: row.seen[: len(said)] for row in verdict.nodes if row.status is Status.FAIL} == {
        "gpu000": said,
        "gpu001": said,
    }
    assert verdict.passed_nodes == 4


@pytest.mark.parametrize(
    ("fault", "host_network", "functional"),
    [
        ("upstream_dns_dead", "no DNS server that CoreDNS asks (8.8.8.8) answers about", "resolves names of the cluster, and not "),
        ("search_domain_catches_all", "", "search domain hpc.example.org of this node answers for outside names too"),
        ("services_cut_from_hosts", "cp00: from the host network of this server, a Service with pods on", ""),
    ],
)
def test_what_the_next_stage_needs_is_told_with_its_own_cause(make: Make, fault: str, host_network: str, functional: str) -> None:
    """Names of the cluster resolve and pods reach each other under all of them."""
    verdicts = judge(up(make, fault))
    for gate, cause in (("rke2/host_network", host_network), ("rke2/functional", functional)):
        assert verdicts[gate].is_pass is not bool(cause), verdicts[gate].reason
        assert cause in verdicts[gate].reason


def test_the_disk_of_one_server_is_named(make: Make) -> None:
    verdict = played(up(make, "etcd_disk_slow"))
    assert [row.node for row in verdict.nodes if row.status is Status.FAIL] == ["cp00"]
    assert "of etcd's 5000 fsyncs since its start is 6" in verdict.seen, "within the bucket of 32 to 64 ms"


def test_a_fault_that_comes_later_turns_a_ready_node(make: Make) -> None:
    user = up(make, agents=2, servers=1)
    user.world.set_faults([("node_not_ready", ("gpu001",))])
    user.simulator.advance(30)
    assert [name for name, node in nodes(user).items() if node.ready != "True"] == ["gpu001"]
    assert nodes(user)["gpu001"].taints == ("node.kubernetes.io/not-ready:NoSchedule",)


def test_every_fault_names_its_stage_and_a_gate_of_it() -> None:
    names = [fault.name for fault in fault_registry.faults()]
    assert len(names) == len(set(names))
    for fault in fault_registry.faults():
        assert fault.stage in fault_registry.STAGES
        assert fault.gate.startswith(f"{fault.stage}/")
        assert fault.summary.endswith(".")
        assert fault.caught_by.endswith(".")


def test_an_unknown_fault_gets_a_proposal() -> None:
    with pytest.raises(fault_registry.UnknownFault, match="did you mean node_not_ready"):
        fault_registry.find_fault("node_not_redy")


def test_a_fault_without_a_victim_in_the_fleet_is_refused(make: Make) -> None:
    with pytest.raises(fault_registry.UnknownFault, match="needs agents:2"):
        make(agents=0, faults=[("node_not_ready", ())])
