"""The gangs of stage gang as objects: what each member runs, with which image, and what the gates expect of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract.verdict import Verdict
from steps.stages.gang import gate
from steps.stages.gang.contract import FitExpectation, GangGroup, GangMember, GangObservation
from workflows import catalog, examples, spec
from workflows.stages import gang
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
    assert {entry["name"] for entry in member["env"]} == {"NODE_NAME", "SECONDS_TO_HOLD", "NVIDIA_DRIVER_CAPABILITIES"}
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
    assert expectations["shared"] is True


def test_large_fleets_run_the_kernel_on_every_gpu_of_a_node() -> None:
    expectations = step(stage(hosts=LARGE, quorum={"default": "all"}), "functional").task.expectations
    assert (expectations["count"], expectations["units"], expectations["devices"]) == (128, 8, 8)


def test_quotas_may_exceed_the_nodes_by_those_that_the_quorum_forgives() -> None:
    for quorum, spare in (("15/16", 8), ("all", 0)):
        made = stage(scheduler={"quota": "kueue", "queues": QUEUES}, quorum={"default": quorum})
        assert step(made, "control").task.expectations["spare"] == spare


def test_spare_units_are_those_of_their_resource() -> None:
    sliced = {"role": "agent", "ranges": "sliced[1-2]", "gpu": True, "sharing": SHARES}
    hosts = LARGE | {"gpu": LARGE["gpu"] | {"ranges": "gpu[1-6]"}, "sliced": sliced}
    made = stage(hosts=hosts, scheduler={"quota": "kueue", "queues": QUEUES}, quorum={"default": "5/8"})
    expectations = step(made, "control").task.expectations
    assert (expectations["spare"], expectations["spares"]) == (64, {"nvidia.com/gpu": 24}), "three nodes, two of them with shares"


def test_quotas_are_not_compared_where_pods_claim_their_gpus() -> None:
    made = stage(scheduler={"quota": "kueue", "queues": QUEUES}, sharing={"mode": "dra"})
    expectations = step(made, "control").task.expectations
    assert expectations["claims"] is True
    assert "spare" not in expectations


def report(member: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a member's command on node gpu001 with the tools in `folder`, and return the report in its termination message."""
    message = folder / "termination-log"
    command = [part.replace("/dev/termination-log", str(message)) for part in member["command"]]
    path = f"{folder}:{os.environ['PATH']}"
    subprocess.run(command, env={"PATH": path, "NODE_NAME": "gpu001", "SECONDS_TO_HOLD": "0"}, check=True, timeout=60)
    return dict(json.loads(message.read_text()))


def judged(made: Stage, said: dict[str, Any]) -> Verdict:
    """The verdict on a gang of two whose members both left this report, the second one with devices of its own."""
    first = GangMember(
        name="a", node="gpu001", phase="Succeeded", exit_code=0, report=said, bound=1001.0, started=1002.0, ended=1003.0
    )
    other = said | {"uuids": [f"{uuid}-b" for uuid in said["uuids"]]} if "uuids" in said else said
    members = (first, msgspec.structs.replace(first, name="b", report=other))
    expectations = step(made, "functional").task.expectations | {"count": 2}
    group = GangGroup(name="g", least=2)
    seen = GangObservation(now=1010.0, since=1000.0, free=16, group=group, members=members)
    return gate.functional(seen, msgspec.convert(expectations, FitExpectation))


def tool(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_gate_takes_what_members_report(tmp_path: Path) -> None:
    without = stage(slurm={"kind": "slinky"})
    assert judged(without, report(container(without, "functional"), tmp_path)).is_pass
    tool(tmp_path, "nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)'")
    tool(tmp_path, "vectorAdd", "echo Test PASSED")
    made = stage()
    assert judged(made, report(container(made, "functional"), tmp_path)).is_pass


@pytest.mark.parametrize(
    ("listed", "kernel", "problem"),
    [
        ("GPU 0: NVIDIA H200 (UUID: GPU-00000000-0000-0000-0000-000000000000)", "echo no device; exit 1", "ran on 0 of 1 devices"),
        ("Failed to initialize NVML: Unknown Error", "echo Test PASSED", "ran on 0 of 0 devices: nvidia-smi lists no device"),
        ("GPU 0: x (UUID: GPU-0)\nGPU 1: x (UUID: GPU-1)", "echo Test PASSED", "ran on 2 of 2 devices"),
    ],
    ids=["kernel_fails", "no_driver", "two_gpus"],
)
def test_the_gate_refuses_members_whose_kernel_did_not_run_on_their_gpu(
    listed: str, kernel: str, problem: str, tmp_path: Path
) -> None:
    tool(tmp_path, "nvidia-smi", f"echo '{listed}'")
    tool(tmp_path, "vectorAdd", kernel)
    made = stage()
    verdict = judged(made, report(container(made, "functional"), tmp_path))
    assert verdict.final
    assert problem in verdict.reason


def in_turn(made: Stage, a_second: float) -> Verdict:
    """The verdict on a gang whose members were created one after the other, bound at once, and ran as long as they are told to."""
    expected = msgspec.convert(step(made, "functional").task.expectations, FitExpectation)
    (hold,) = (float(entry["value"]) for entry in container(made, "functional")["env"] if entry["name"] == "SECONDS_TO_HOLD")
    report = {"passed": expected.devices, "begin": 1, "end": 2}
    bound = [1000.0 + number / a_second for number in range(expected.count)]
    members = tuple(
        GangMember(
            name=f"m{number}",
            node=f"n{number}",
            phase="Succeeded",
            exit_code=0,
            report=report | {"node": f"n{number}", "uuids": [f"GPU-{number}-{gpu}" for gpu in range(expected.devices)]},
            bound=at,
            # the first container starts at once, the others take their time
            started=at + (10.0 if number else 0.0),
            ended=at + (10.0 if number else 0.0) + hold,
        )
        for number, at in enumerate(bound)
    )
    group = GangGroup(name="g", least=expected.count)
    return gate.functional(GangObservation(now=members[-1].ended, since=1000.0, group=group, members=members), expected)


@pytest.mark.parametrize("nodes", [1250, 5000])
def test_members_of_a_large_gang_hold_their_places_until_the_last_is_created(nodes: int) -> None:
    hosts = LARGE | {"gpu": {"role": "agent", "ranges": f"gpu[0001-{nodes}]", "gpu": True}}
    kueue = {"gang": "none", "quota": "kueue", "queues": QUEUES}
    made = stage(hosts=hosts, scheduler=kueue, quorum={"default": "all"}, rke2={"cluster_cidr": "100.64.0.0/11"})
    task = step(made, "functional").task
    expected = msgspec.convert(task.expectations, FitExpectation)
    assert expected.count == nodes
    assert in_turn(made, 20.0).is_pass
    assert not in_turn(made, 5.0).is_pass
    assert task.deadline_seconds > expected.within_seconds + expected.run_seconds
    (job,) = (item for item in task.arguments["objects"] if item["kind"] == "Job")
    assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] > task.deadline_seconds


def test_only_the_control_gate_may_look_for_schedulers_of_somebody_else() -> None:
    made = stage()
    may = {
        name: any("admissionregistration.k8s.io" in rule.groups for rule in step(made, name).rules)
        for name in ("control", "nodes", "oversize", "functional")
    }
    assert may == {"control": True, "nodes": False, "oversize": False, "functional": False}
