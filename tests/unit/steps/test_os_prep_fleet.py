"""Odd ones out of a fleet are named, each among machines of its kind, and the judge of the stage passes the remarks on."""

import msgspec

from steps.contract import judging
from steps.contract.verdict import NodeVerdict, Status, passed
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
    nic_firmware=("MT_0838 28.43.1014",) * 8,
)
PLAIN = msgspec.structs.replace(GPU, gpus=0, gpu_machine=False, cpus=64, memory_mib=515_000, nvidia_driver="", nic_firmware=())


def remarks(**machines: Facts) -> tuple[str, ...]:
    nodes = tuple(FleetNode(node=name, facts=msgspec.structs.replace(facts, machine_id=name)) for name, facts in machines.items())
    verdict = os_prep.fleet(FleetObservation(nodes=nodes), NodesExpectation(nodes=tuple(machines)))
    assert verdict.is_pass, verdict.reason
    return verdict.notes


def but(facts: Facts, **words: object) -> Facts:
    return msgspec.structs.replace(facts, **words)


def test_machines_of_a_kind_that_are_alike_are_no_remark() -> None:
    assert remarks(sv1=PLAIN, sv2=PLAIN, gpu1=GPU, gpu2=but(GPU, memory_mib=2_063_100), gpu3=GPU) == ()


def test_every_odd_one_is_named_with_what_the_others_have() -> None:
    odd = but(
        GPU,
        kernel="6.8.0-31-generic",
        bios="AMI 1.1",
        nic_firmware=("MT_0838 28.39.1002",) * 8,
        gpus=7,
        nvidia_driver="570.124.06",
        memory_mib=1_031_000,
        cpu_model="Xeon 8468",
    )
    said = remarks(sv1=PLAIN, gpu1=GPU, gpu2=odd, gpu3=GPU)
    assert "bios is AMI 1.2 on 2 of 3 GPU machines, but not on gpu2 AMI 1.1" in said
    assert "gpus is 8 on 2 of 3 GPU machines, but not on gpu2 7" in said
    assert "nvidia driver is 580.126.20 on 2 of 3 GPU machines, but not on gpu2 570.124.06" in said
    assert "memory gib is 2015 on 2 of 3 GPU machines, but not on gpu2 1007" in said
    assert {line.split(" is ")[0] for line in said} == {
        *("kernel", "bios", "nic firmware", "gpus", "nvidia driver", "memory gib", "cpu model")
    }


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
