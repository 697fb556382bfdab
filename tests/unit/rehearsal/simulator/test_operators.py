"""base_services, gpu_operator and network_operator end to end: the plan's own objects, the simulated cluster, probes and gates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.clients.kube.client import Kube
from steps.contract.task import Task, Verb
from steps.contract.verdict import Status, Verdict
from steps.runtime import check_manifests, gating
from steps.stages.base_services import probe as base_services
from steps.stages.gpu_operator import probe as gpu_operator
from steps.stages.network_operator import probe as network_operator
from steps.stages.shared import probe_charts
from steps.stages.shared.kube_reader import Scope
from tests.unit.rehearsal.simulator.harness import Make, User, hosts
from workflows import catalog, spec
from workflows import stages as order
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread
from workflows.rehearsal.faults import base_services as base_faults
from workflows.rehearsal.faults import gpu_operator as gpu_faults
from workflows.rehearsal.faults import network_operator as network_faults
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.simulator.api.api_kinds import NODES
from workflows.rehearsal.simulator.machines.simulated_fleet import SimulatedFleet
from workflows.rehearsal.simulator.simulation import SimulatorState, build
from workflows.stages.stage import Stage

EXAMPLE = Path(__file__).parents[4] / "workflows/examples/h200-16.yaml"
STAGES = ("base_services", "gpu_operator", "network_operator")
HOSTS = {
    "servers": {"role": "server", "ranges": "cp[00]", "addresses": {"start": "10.1.0.1"}},
    "gpu": {"role": "agent", "ranges": "gpu[000-003]", "gpu": True, "addresses": {"start": "10.1.0.2"}},
}
POOL = {"subnet": "192.168.0.0/16"}
FAULTS: tuple[Fault, ...] = tuple(
    fault for fault in (*base_faults.FAULTS, *gpu_faults.FAULTS, *network_faults.FAULTS) if not fault.needs
)  # those that need another spec, or GitOps with a task that this runner does not play, are in tests/unit/rehearsal/faults


def planned(**changes: Any) -> dict[str, Stage]:
    """The three stages of a small cluster: one server, four nodes with eight GPUs, three of which are enough."""
    written: dict[str, Any] = (
        yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | {"hosts": HOSTS, "quorum": {"default": "3/4"}} | changes
    )
    written |= {"stages": ["rke2", *STAGES], "approvals": [], "validation": {}, "slurm": {"kind": "none"}}
    plan = compile_plan(spec.load(yaml.safe_dump(written)), catalog.load())
    return {stage.id: stage for stage in plan.stages if stage.id in STAGES}


class Runner:
    """Does what the verbs do, with the simulator in this process: time passes by `advance`."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.kube = Kube.from_file(user.kubeconfig)
        self.nodes = tuple(host.name for host in user.world.fleet if host.gpus)

    def run(self, stage: Stage) -> dict[str, Verdict]:
        """Verdict by gate, up to the first task that ends the stage."""
        verdicts: dict[str, Verdict] = {}
        for step in stage.steps:
            if step.task.verb is Verb.APPLY:
                for manifest in step.task.arguments["objects"]:
                    self.kube.apply(manifest)
            elif step.task.verb in (Verb.WAIT, Verb.JOB):
                gate = step.task.arguments["gate"]
                verdicts[gate] = self.wait(step.task) if step.task.verb is Verb.WAIT else self.check(step.task)
                if not verdicts[gate].is_pass and step.task.arguments.get("decides", True):
                    break
        return verdicts

    def wait(self, task: Task) -> Verdict:
        gate, probe = gating.find(task.arguments["gate"]), gating.probe(task.arguments["gate"])
        want = gate.expect(task.expectations, self.nodes)
        deadline = self.user.world.now + task.deadline_seconds
        while True:
            scope = Scope(nodes=self.nodes, arguments=task.arguments, now=self.user.world.now)
            seen = probe(self.kube, scope)
            assert msgspec.convert(msgspec.to_builtins(seen), gate.observation) == seen
            verdict = gate.decide(seen, want)
            if verdict.is_pass or verdict.final or self.user.world.now >= deadline:
                return verdict
            self.user.simulator.advance(20, deadline)

    def check(self, task: Task) -> Verdict:
        made = [check_manifests.on_nodes(manifest, self.nodes) for manifest in task.arguments["objects"]]
        for manifest in made:
            self.kube.apply(manifest)
        verdict = self.wait(task)
        for manifest in made:
            if manifest["kind"] != "Namespace":
                self.kube.delete(self.kube.path(manifest))
        self.user.simulator.advance(30)
        return verdict


def up(make: Make) -> Runner:
    # real time is the API server's: its stamps and the simulated ones must agree, as they do in a rehearsal
    user = make(agents=4, servers=1, start=None)
    user.bring_up()
    return Runner(user)


class Stand:
    """One healthy run of the three stages, and its state before each of them, to go back to with a fault."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig)
        self.runner = Runner(User(build(kubeconfig, SimulatedFleet(hosts(4, 1)), seed=7), kubeconfig))
        self.stages = planned()
        self.runner.user.bring_up()
        self.before: dict[str, tuple[bytes, SimulatorState]] = {}
        self.healthy: dict[str, dict[str, Verdict]] = {}
        for name in STAGES:
            snapshot = self.runner.user.api.send("GET", "/emulation/snapshot")
            self.before[name] = (snapshot, msgspec.convert(msgspec.to_builtins(self.runner.user.simulator.state()), SimulatorState))
            self.healthy[name] = self.runner.run(self.stages[name])

    def run(self, stage: str, *faults: tuple[str, tuple[str, ...]]) -> dict[str, Verdict]:
        """The stage's verdicts with these faults in force since just before it."""
        snapshot, state = self.before[stage]
        user = self.runner.user
        user.world.set_faults(())
        user.api.send("PUT", "/emulation/snapshot", snapshot)
        user.simulator.restore(state)
        user.world.set_faults(faults)
        user.simulator.settle()
        return self.runner.run(self.stages[stage])

    def close(self) -> None:
        self.runner.user.world.close()
        self.runner.user.api.close()


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with serve_in_thread() as server:
        made = Stand(server, tmp_path_factory.mktemp("stand"))
        yield made
        made.close()


def problems(verdicts: dict[str, Verdict]) -> dict[str, str]:
    return {gate: verdict.reason for gate, verdict in verdicts.items() if not verdict.is_pass}


def test_a_healthy_cluster_passes_every_gate(stand: Stand) -> None:
    for name in STAGES:
        assert problems(stand.healthy[name]) == {}
        assert list(stand.healthy[name]) == list(stand.stages[name].gates)


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_the_gate_it_names(stand: Stand, fault: Fault) -> None:
    verdicts = stand.run(fault.stage, (fault.name, ()))
    caught = problems(verdicts)
    assert next(iter(caught), None) == fault.gate, caught
    worst = verdicts[fault.gate]
    assert worst.failure_class is not None
    if worst.nodes:
        assert sum(row.status is Status.PASS for row in worst.nodes) < 3


def test_faults_name_gates_of_their_stage(stand: Stand) -> None:
    stages = stand.stages
    assert {fault.gate for fault in FAULTS} <= {gate for stage in stages.values() for gate in stage.gates}
    for name in STAGES:
        assert sum(fault.stage == name for fault in FAULTS) >= 2
    known = {"no_gpu_nodes", "clusterpolicy_stale_ready", "operands_broken", "foreign_nfd"}
    assert known <= {fault.name for fault in FAULTS if fault.false_green}


def test_one_broken_node_is_within_the_quorum(stand: Stand) -> None:
    verdicts = stand.run("gpu_operator", ("driver_crash", ("gpu002",)))
    assert verdicts["gpu_operator/control"].is_pass
    assert any("within the quorum" in note for note in verdicts["gpu_operator/control"].notes)
    rows = verdicts["gpu_operator/nodes"].nodes
    assert [row.node for row in rows if row.status is not Status.PASS] == ["gpu002"]
    assert "driver-validation" in next(row.seen for row in rows if row.node == "gpu002")


def test_a_second_run_changes_nothing_and_passes(make: Make) -> None:
    runner, stages = up(make), planned()
    for _ in range(2):
        for name in STAGES:
            assert problems(runner.run(stages[name])) == {}
    (state,) = probe_charts.observe(runner.kube, probe_charts.scoped_releases(scope_of(stages["gpu_operator"])))
    assert state.newest is not None
    assert (state.newest.number, state.newest.status, state.newest.chart_version) == (1, "deployed", "v26.3.3")


def scope_of(stage: Stage) -> Scope:
    return Scope(arguments=next(step.task.arguments for step in stage.steps if step.name == "control"))


@pytest.mark.parametrize(
    "changes",
    [
        {"accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}, "sharing": {"mode": "dra"}},
        {"fabric": {"kind": "infiniband", "mode": "host_device", "driver": "operator", "ip_pool": POOL}},
        {"fabric": {"kind": "infiniband", "mode": "sriov", "ip_pool": POOL}},
        {"fabric": {"kind": "infiniband", "mode": "sriov", "device_ids": ["1021", "101d"], "ip_pool": POOL}},
        {"overrides": {"gpu_operator": {"values": {"driver": {"usePrecompiled": True, "version": "580"}}}}},
    ],
    ids=["gpu_cluster", "host_device", "sriov", "sriov of two device ids", "precompiled drivers"],
)
def test_other_modes_pass_up_to_the_nodes(make: Make, changes: dict[str, Any]) -> None:
    runner, stages = up(make), planned(**changes)
    for name in STAGES:
        verdicts = runner.run(stages[name])
        verdicts.pop("network_operator/functional", None)  # simulated pods carry no network status
        assert problems(verdicts) == {}


def test_probes_read_an_empty_cluster(make: Make) -> None:
    runner = up(make)
    scope = Scope(nodes=runner.nodes, arguments={"releases": [{"name": "x", "namespace": "y", "version": "1"}], "crds": ["a.b"]})
    assert base_services.control(runner.kube, scope).releases[0].chart is None
    assert base_services.functional(runner.kube, scope).pods == ()
    assert gpu_operator.control(runner.kube, scope).cluster_policies == ()
    assert len(gpu_operator.nodes(runner.kube, scope).nodes) == 4
    assert network_operator.charts(runner.kube, scope).crds == ()
    assert network_operator.control(runner.kube, scope).policies == ()
    assert network_operator.nodes(runner.kube, scope).nodes[0].allocatable == 0


def test_gpus_appear_in_their_causal_order(make: Make) -> None:
    """NFD's label, the operator's label, driver, toolkit, device plugin: none before the one it depends on."""
    runner, stages = up(make), planned()
    runner.run(stages["base_services"])
    for manifest in next(step.task.arguments["objects"] for step in stages["gpu_operator"].steps if step.name == "apply"):
        runner.kube.apply(manifest)
    marks = ("feature.node.kubernetes.io/pci-10de.present", "nvidia.com/gpu.present", "simulated/nvidia-driver",
             "simulated/nvidia-toolkit", "simulated/nvidia-plugin", "simulated/gpu-feature-discovery")  # fmt: skip
    first: dict[str, float] = {}
    for _ in range(90):
        runner.user.simulator.advance(10)
        node = runner.user.api.get(NODES, "gpu001") or {}
        shown: Iterable[str] = (node["metadata"].get("labels") or {}) | (node["metadata"].get("annotations") or {})
        for mark in marks:
            if mark in shown:
                first.setdefault(mark, runner.user.world.now)
    assert list(first) == [mark for mark in marks if mark in first]
    assert sorted(first.values()) == [first[mark] for mark in marks]
    assert order.ORDER.index("base_services") < order.ORDER.index("gpu_operator")
