"""The gangs of stage gang as objects: what each member runs, with which image, and what the gates expect of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import catalog, examples, spec
from workflows.stages import gang, manifest_objects
from workflows.stages.stage import Site, Stage, Step

SHARES = {"mode": "time_slicing", "replicas": 4}
MEASURED = {"nccl": {"inter_node_floor_gb_s": 350}}
QUEUES = [{"name": "research", "namespace": "team-a", "gpus": 64}]
LARGE = {"gpu": {"role": "agent", "ranges": "gpu[001-128]", "gpu": True}, "servers": {"role": "server", "ranges": "sv1"}}


def stage(**changes: Any) -> Stage:
    """Stage gang of the example without Slurm, which would hold the GPUs."""
    text = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader)
    cluster = spec.load(yaml.safe_dump(text | {"slurm": {"kind": "none"}} | changes))
    releases = {release.id: release for release in catalog.resolve(cluster, catalog.load())}
    made = gang.build(Site(spec=cluster, machines=cluster.machines, releases=releases))
    assert made is not None
    return made


def step(made: Stage, name: str) -> Step:
    return next(task for task in made.steps if task.name == name)


def container(made: Stage, name: str) -> dict[str, Any]:
    """The container of a member of the gang that the step creates."""
    job = step(made, name).task.arguments["objects"][-1]["spec"]
    template = job["tasks"][0]["template"] if "tasks" in job else job["template"]
    (only,) = template["spec"]["containers"]
    return dict(only)


def test_members_with_gpus_run_cuda_in_the_image_of_the_validation() -> None:
    made = stage(check_image="r.example.org/busybox:1", validation=MEASURED | {"image": "r.example.org/cuda:1"})
    member = container(made, "functional")
    assert member["image"] == "r.example.org/cuda:1"
    assert member["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert "vectorAdd" in member["command"][-1]
    assert {entry["name"] for entry in member["env"]} == {"NODE_NAME", "SECONDS_TO_HOLD"}
    assert step(made, "functional").task.expectations == {"scheduler": "volcano", "count": 15, "units": 1, "devices": 1}
    assert container(made, "oversize")["image"] == "r.example.org/busybox:1"


@pytest.mark.parametrize(
    "changes", [{"slurm": {"kind": "slinky"}}, {"sharing": {"mode": "dra"}}], ids=["slurm_holds_gpus", "claims_only"]
)
def test_members_without_gpus_need_a_shell_only(changes: dict[str, Any]) -> None:
    made = stage(check_image="r.example.org/busybox:1", **changes)
    member = container(made, "functional")
    assert member["image"] == "r.example.org/busybox:1"
    assert "nvidia-smi" not in member["command"][-1]
    expectations = step(made, "functional").task.expectations
    assert "devices" not in expectations
    assert expectations["quota"] == expectations["count"] == 15


def test_members_take_one_share_each_even_where_the_oversized_gang_takes_whole_nodes() -> None:
    made = stage(hosts=LARGE, sharing=SHARES, quorum={"default": "all"})
    assert container(made, "oversize")["resources"] == {"limits": {"nvidia.com/gpu.shared": 32}}
    assert container(made, "functional")["resources"] == {"limits": {"nvidia.com/gpu.shared": 1}}
    expectations = step(made, "functional").task.expectations
    assert (expectations["count"], expectations["units"], expectations["devices"]) == (128, 1, 1)


def test_large_fleets_run_the_kernel_on_every_gpu_of_a_node() -> None:
    expectations = step(stage(hosts=LARGE, quorum={"default": "all"}), "functional").task.expectations
    assert (expectations["count"], expectations["units"], expectations["devices"]) == (128, 8, 8)


def test_quotas_may_exceed_the_nodes_by_those_that_the_quorum_forgives() -> None:
    for quorum, spare in (("15/16", 8), ("all", 0)):
        made = stage(scheduler={"quota": "kueue", "queues": QUEUES}, quorum={"default": quorum})
        assert step(made, "control").task.expectations["spare"] == spare


def test_quotas_are_not_compared_where_pods_claim_their_gpus() -> None:
    made = stage(scheduler={"quota": "kueue", "queues": QUEUES}, sharing={"mode": "dra"})
    expectations = step(made, "control").task.expectations
    assert expectations["claims"] is True
    assert "spare" not in expectations


def test_a_member_without_gpus_reports_node_and_time(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    script = manifest_objects.script("gang_member.sh").replace("/dev/termination-log", str(message))
    subprocess.run(["/bin/sh", "-c", script], env={"PATH": os.environ["PATH"], "NODE_NAME": "gpu001"}, check=True)
    report = json.loads(message.read_text())
    assert report.keys() == {"node", "time"}
    assert report["node"] == "gpu001"
    assert report["time"] > 1_700_000_000


def test_only_the_control_gate_may_look_for_schedulers_of_somebody_else() -> None:
    made = stage()
    may = {
        name: any("admissionregistration.k8s.io" in rule.groups for rule in step(made, name).rules)
        for name in ("control", "nodes", "oversize", "functional")
    }
    assert may == {"control": True, "nodes": False, "oversize": False, "functional": False}
