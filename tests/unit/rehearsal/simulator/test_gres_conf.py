"""The correction of SUNK's gres.conf: after an install, without a change, after an upgrade, and after it was killed."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from steps.clients.kube.client import Kube
from steps.contract.gres_conf import KEY, GresConf, NodeGpus, nodes_of, text_of
from steps.runtime import gres_settlement
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import DirectTask, VirtualClock, kubelets, run
from tests.unit.rehearsal.simulator.test_slurm import cluster, sunk
from workflows.rehearsal.simulator import api_kinds, slurm_sunk

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


@pytest.fixture
def user(make: Make) -> User:
    """A cluster on which the stage has run up to its gate about the control plane."""
    user, whole = cluster(make), sunk()
    names = [step.name for step in whole.steps]
    verdicts = run(user, dataclasses.replace(whole, steps=whole.steps[: names.index("control") + 1]))
    assert {name: verdict.reason for name, verdict in verdicts.items() if not verdict.is_pass} == {}
    return user


def test_pods_restart_only_for_a_new_line(user: User) -> None:
    before = uids(user)
    assert settled(user) == "gres.conf has 3 nodes with GPUs, 0 pods restarted, 0 nodes resumed"
    assert uids(user) == before


@pytest.mark.parametrize(
    "patch",
    [{"data": {KEY: "AutoDetect=nvml\n"}}, {"metadata": {"annotations": {gres_settlement.MARK: None}}}],
    ids=["an upgrade writes the chart's own text", "the task was killed before the restarts"],
)
def test_all_pods_restart_when_they_may_have_read_another_text(user: User, patch: dict[str, Any]) -> None:
    before = uids(user)
    user.api.merge(api_kinds.CONFIG_MAPS, MAP, patch)
    user.simulator.settle()
    assert settled(user) == "gres.conf has 3 nodes with GPUs, 3 pods restarted, 0 nodes resumed"
    assert not uids(user) & before
