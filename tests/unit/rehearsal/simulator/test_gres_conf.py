"""The correction of SUNK's gres.conf after an install, an upgrade, and a kill, and the topology.conf that is written beside it."""

from __future__ import annotations

import dataclasses

import msgspec

from steps.clients.kube.client import Kube
from steps.contract import topology_conf
from steps.contract.gres_conf import KEY, GresConf, NodeGpus, nodes_of, text_of
from steps.runtime import gres_settlement
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import LEAVES, DirectTask, VirtualClock, kubelets, run
from tests.unit.rehearsal.simulator.test_slurm import cluster, sunk
from workflows.rehearsal.simulator.api import api_kinds
from workflows.rehearsal.simulator.stages.slurm import slurm_sunk

MAP = api_kinds.Ref("tenant-slurm", slurm_sunk.CONF)


def test_nodes_with_equal_gpus_share_a_line() -> None:
    nodes = {"slurm-gpu-000-001": NodeGpus("h200", 8), "slurm-gpu-000-000": NodeGpus("h200", 8), "slurm-l4-0": NodeGpus("l4", 1)}
    text = text_of(nodes)
    assert text.splitlines() == [
        "AutoDetect=off",
        "NodeName=slurm-gpu-000-[000-001] Name=gpu Type=h200 File=/dev/nvidia[0-7]",
        "NodeName=slurm-l4-0 Name=gpu Type=l4 File=/dev/nvidia0",
    ]
    assert nodes_of(text) == nodes
    assert nodes_of("AutoDetect=nvml\nName=gpu File=/dev/nvidia0\n") == {}


def settled(user: User) -> str:
    (step,) = [step for step in sunk().steps if step.name == "gres"]
    wanted = msgspec.convert(step.task.arguments["gres_conf"], GresConf)
    task = DirectTask(Kube.from_file(user.kubeconfig), VirtualClock(user))
    with kubelets(user):
        return gres_settlement.settle(task, wanted).reason


def uids(user: User) -> set[str]:
    return {pod["metadata"]["uid"] for pod in user.pods("tenant-slurm", f"{slurm_sunk.ROLE}=compute")}


def test_pods_restart_only_if_they_may_have_read_another_text(make: Make) -> None:
    user, whole = cluster(make), sunk()
    names = [step.name for step in whole.steps]
    verdicts = run(user, dataclasses.replace(whole, steps=whole.steps[: names.index("control") + 1]))
    assert {name: verdict.reason for name, verdict in verdicts.items() if not verdict.is_pass} == {}
    before = uids(user)
    assert settled(user) == "gres.conf has 3 nodes with GPUs, 0 pods restarted, 0 nodes resumed"
    assert uids(user) == before
    an_upgrade_writes_its_own_text = {"data": {KEY: "AutoDetect=nvml\n"}}
    the_task_was_killed_before_the_restarts = {"metadata": {"annotations": {gres_settlement.MARK: None}}}
    for patch in (an_upgrade_writes_its_own_text, the_task_was_killed_before_the_restarts):
        before = uids(user)
        user.api.merge(api_kinds.CONFIG_MAPS, MAP, patch)
        user.simulator.settle()
        assert settled(user) == "gres.conf has 3 nodes with GPUs, 3 pods restarted, 0 nodes resumed", patch
        assert not uids(user) & before
    topology_follows_the_pods(user)


def topology_follows_the_pods(user: User) -> None:
    """topology.conf has the pods at the leaves of their nodes, and is written again if somebody has changed it."""
    pods = user.pods("tenant-slurm", f"{slurm_sunk.ROLE}=compute")
    placed = {pod["metadata"]["name"]: LEAVES[pod["spec"]["nodeName"]] for pod in pods}
    assert {name: leaf for leaf, names in leaves(user).items() for name in names} == placed
    user.api.merge(api_kinds.CONFIG_MAPS, MAP, {"data": {topology_conf.KEY: "SwitchName=leaf9 Nodes=slurm-gpu-000-000\n"}})
    user.simulator.settle()
    settled(user)
    assert {name: leaf for leaf, names in leaves(user).items() for name in names} == placed


def leaves(user: User) -> dict[str, tuple[str, ...]]:
    stored = user.api.get(api_kinds.CONFIG_MAPS, MAP.name, MAP.namespace)
    assert stored is not None
    return topology_conf.leaves_of(stored["data"][topology_conf.KEY])
