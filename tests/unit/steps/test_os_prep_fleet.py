"""Odd ones out of a fleet are named, each among machines of its kind, and the judge of the stage passes the remarks on."""

from typing import Any

import msgspec
import pytest

from steps.contract.runs import judging
from steps.contract.verdict import NodeVerdict, Status, Verdict, passed
from steps.runtime import quorum
from steps.stages.os_prep import gate as os_prep
from steps.stages.os_prep.contract import Facts, FleetNode, FleetObservation, NodeClock, NodesExpectation

GPU = Facts(
    os_id="ubuntu",
    os_version="24.04",
    kernel="6.8.0-60-generic",
    architecture="x86_64",
    python="3.12.3",
    clock=NodeClock(epoch=1.0),
    machine_id="",
    gpus=8,
    nvswitches=4,
    nouveau_loaded=False,
    gpu_machine=True,
    bios="AMI 1.2",
    cpu_model="Xeon 8480C",
    cpus=224,
    memory_mib=2_063_500,
    nvidia_driver="580.126.20",
    driver_flavour="open",
    nic_firmware=("MT_0838 28.43.1014",) * 8,
)
PLAIN = msgspec.structs.replace(GPU, gpus=0, gpu_machine=False, cpus=64, memory_mib=515_000, nvidia_driver="", nic_firmware=())


def compared(want: NodesExpectation | None = None, **machines: Facts) -> Verdict:
    nodes = tuple(FleetNode(node=name, facts=msgspec.structs.replace(facts, machine_id=name)) for name, facts in machines.items())
    expectation = msgspec.structs.replace(want or NodesExpectation(nodes=()), nodes=tuple(machines))
    return os_prep.fleet(FleetObservation(nodes=nodes), expectation)


def remarks(**machines: Facts) -> tuple[str, ...]:
    verdict = compared(**machines)
    assert verdict.is_pass, verdict.reason
    return verdict.notes


def but(facts: Facts, **words: object) -> Facts:
    return msgspec.structs.replace(facts, **words)


def test_machines_of_a_kind_that_are_alike_are_no_remark() -> None:
    assert remarks(sv1=PLAIN, sv2=PLAIN, gpu1=GPU, gpu2=but(GPU, memory_mib=2_063_100), gpu3=GPU) == ()


def test_every_odd_one_is_named_with_what_the_others_have() -> None:
    odd = but(GPU, bios="AMI 1.1", gpus=7, memory_mib=1_031_000, cpu_model="Xeon 8468", nic_firmware=GPU.nic_firmware[:7])
    said = remarks(sv1=PLAIN, gpu1=GPU, gpu2=odd, gpu3=GPU)
    assert "bios is AMI 1.2 on 2 of 3 GPU machines, but not on gpu2 AMI 1.1" in said
    assert "gpus is 8 on 2 of 3 GPU machines, but not on gpu2 7" in said
    assert "memory gib is 2015 on 2 of 3 GPU machines, but not on gpu2 1007" in said
    assert {line.split(" is ")[0] for line in said} == {"bios", "nic firmware", "gpus", "memory gib", "cpu model"}


@pytest.mark.parametrize(
    ("change", "fact", "seen", "usual"),
    [
        ({"kernel": "6.8.0-31-generic"}, "kernel", "kernel is 6.8.0-31-generic", "6.8.0-60-generic as on 2 of 3 nodes"),
        (
            {"nic_firmware": (*GPU.nic_firmware[:7], "MT_0838 28.39.1002")},
            "nic_firmware",
            "NIC firmware is MT_0838 28.39.1002 and 28.43.1014",
            "MT_0838 28.43.1014 as on 2 of 3 nodes",
        ),
        ({"nvidia_driver": "570.124.06"}, "driver", "driver version is 570.124.06", "580.126.20 as on 2 of 3 nodes"),
        ({"driver_flavour": "proprietary"}, "driver_flavour", "kernel module is proprietary", "open as on 2 of 3 nodes"),
    ],
)
def test_another_kernel_firmware_or_driver_fails_unless_the_plan_allows_it(
    change: dict[str, Any], fact: str, seen: str, usual: str
) -> None:
    machines = {"sv1": PLAIN, "gpu1": GPU, "gpu2": but(GPU, **change), "gpu3": GPU}
    want = NodesExpectation(nodes=(), driver_on_host=True)
    verdict = compared(want, **machines)
    assert {row.node: row.status for row in verdict.nodes if row.status != Status.PASS} == {"gpu2": Status.FAIL}
    assert seen in verdict.reason
    assert usual in verdict.reason
    allowed = compared(msgspec.structs.replace(want, may_differ={fact: "update planned"}), **machines)
    assert allowed.is_pass
    assert any("allowed: update planned" in note for note in allowed.notes)


def test_the_operators_driver_is_not_compared_before_it_is_loaded() -> None:
    assert compared(gpu1=GPU, gpu2=but(GPU, nvidia_driver=""), gpu3=but(GPU, nvidia_driver="570.124.06")).is_pass


def test_machines_without_gpus_may_have_another_kernel_than_those_with_gpus() -> None:
    assert compared(sv1=but(PLAIN, kernel="6.1.0"), sv2=but(PLAIN, kernel="6.1.0"), gpu1=GPU, gpu2=GPU).is_pass


def test_without_a_majority_no_machine_passes() -> None:
    verdict = compared(gpu1=GPU, gpu2=but(GPU, kernel="6.8.0-31-generic"))
    assert {row.status for row in verdict.nodes} == {Status.FAIL}
    assert "6.8.0-31-generic on 1 (gpu2), 6.8.0-60-generic on 1 (gpu1)" in verdict.reason


def test_many_odd_ones_are_counted() -> None:
    machines = {f"gpu{number}": GPU for number in range(20)} | {f"old{number}": but(GPU, bios="AMI 1.1") for number in range(8)}
    (said,) = remarks(**machines)
    assert said.endswith("old4 AMI 1.1 and 3 more")


def test_the_judge_passes_remarks_on_once() -> None:
    row = NodeVerdict(node="gpu1", status=Status.PASS)
    verdicts = tuple(passed("os_prep/nodes", "1 of 1", [row], ["bios is odd"]) for _ in range(2))
    seen = judging.StageObservation(results=(judging.TaskVerdicts(task="play", verdicts=verdicts),))
    check = judging.JudgedTask(task="play", gate="os_prep/nodes")
    want = judging.StageExpectation(gate="os_prep/judge", checks=(check,), members=("gpu1",), needed=1)
    verdict = quorum.judge(seen, want)
    assert verdict.is_pass
    assert verdict.notes == ("bios is odd",)
