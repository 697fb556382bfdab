"""Validation: reports of NCCL and DCGM on simulated machines, in the formats of these tools."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from workflows.rehearsal.simulator import pod_objects, validation_nccl
from workflows.rehearsal.simulator.api_kinds import Obj
from workflows.rehearsal.simulator.pod_programs import Behaviour, Exit, LongRunning, check, environment, keep_log, pack
from workflows.rehearsal.simulator.validation_mpi import JOB_NAME, ROLE, MpiOperator, workers
from workflows.rehearsal.simulator.validation_nccl import Communicator
from workflows.rehearsal.simulator.world import World

RUN_SECONDS = 45.0
"""Seconds of one run of nccl-tests over these sizes, with its start."""

SLOW_LARGE, DEGRADED = 0.81, 0.47
"""Share of a machine's bandwidth with bad large messages; `DEGRADED` is the share with half of the NVLinks gone."""

WITHOUT_GDR = 0.92
"""Share of the fabric's bandwidth without GPUDirect RDMA: above the example's floor, so that only the log shows it."""


# ---- NCCL inside a node --------------------------------------------------------------------------------------------------------


@check("nccl-intra")
def nccl_intra(world: World, pod: Obj, node: str) -> Behaviour:
    """Report what `workflows/stages/scripts/nccl_intra.sh` reports."""
    first, last, runs = validation_nccl.check_settings(environment(pod))
    host = str(pod["spec"].get("hostname") or pod["metadata"]["name"])
    if world.fault("nvswitch_not_initialised", node):
        text, code = (
            f"{host}: Test CUDA failure common.cu:941 'system not yet initialized'\n .. {host} pid 71: Test failure\n" * runs,
            2,
        )
    else:
        shape = _machine(world, node, host)
        lines = (line for run in range(runs) for line in validation_nccl.table(shape, first, last, _jitter(world, node, run)))
        text, code = validation_nccl.join_lines(lines), 0
    message = {"node": node, "exits": [code] * runs, "packed": pack(text)}
    return Exit(message=message, log=text, seconds=RUN_SECONDS * runs)


def _machine(world: World, node: str, host: str) -> Communicator:
    hardware, gpus = world.hardware(node), world.host(node).gpus
    full = validation_nccl.within(hardware)
    seen = gpus - bool(world.fault("nccl_gpu_missing", node))
    return Communicator(
        hosts=(host,),
        gpus=seen,
        busbw=full * (DEGRADED if world.fault("nvlink_degraded", node) else 1),
        product=hardware.product,
        slow_at=full * SLOW_LARGE if world.fault("nccl_slow_large_messages", node) else 0.0,
    )


def _jitter(world: World, name: str, run: int) -> float:
    return 2 * world.chance(f"validation/nccl/{name}/{run}") - 1


# ---- NCCL over all nodes -------------------------------------------------------------------------------------------------------


@check("nccl-inter")
def nccl_inter(world: World, pod: Obj, node: str) -> Behaviour:
    """Play an MPI worker, which waits for the launcher, or the launcher, which reports what `scripts/nccl_inter.sh` reports."""
    labels = pod["metadata"]["labels"]
    if labels.get(ROLE) == "worker":
        return LongRunning()
    own = workers(world, pod["metadata"]["namespace"], labels[JOB_NAME])
    _, _, runs = validation_nccl.check_settings(environment(pod))
    text, code = _together(world, pod, own, runs)
    message = {"node": node, "exits": [code] * runs}
    return Exit(message=message, seconds=RUN_SECONDS * runs, effect=functools.partial(keep_log, world, pod, text))


def _together(world: World, pod: Obj, own: list[Obj], runs: int) -> tuple[str, int]:
    first, last, _ = validation_nccl.check_settings(environment(pod))
    nodes = [pod_objects.node(worker) for worker in own]
    lost = next((worker for worker in own if world.fault("ib_retry_exceeded", pod_objects.node(worker))), None)
    shape, network, gdr = _fabric(world, [worker["metadata"]["name"] for worker in own], nodes, int(environment(pod)["PER_NODE"]))
    missing = bool(world.fault("nccl_adapter_missing"))
    adapters = [f"mlx5_{number}" for number in range(world.hardware(nodes[0]).nics - missing)]
    lines = list(validation_nccl.debug_info(shape, adapters, network=network, gdr=gdr))
    if lost is not None:
        return validation_nccl.join_lines([*lines, *_retry_exceeded(lost["metadata"]["name"])]), 3
    tables = (line for run in range(runs) for line in validation_nccl.table(shape, first, last, _jitter(world, "fabric", run)))
    return validation_nccl.join_lines([*lines, *tables]), 0


def _fabric(world: World, hosts: list[str], nodes: list[str], gpus: int) -> tuple[Communicator, str, bool]:
    """Return the communicator over all workers, the network it uses, and True for GPUDirect RDMA."""
    hardware = world.hardware(nodes[0])
    busbw = min(validation_nccl.between(hardware), validation_nccl.within(hardware))
    product, gdr, network = hardware.product, True, "IB"
    if world.fault("nccl_one_host"):
        return (
            Communicator(hosts=tuple(hosts[:1]), gpus=gpus, busbw=validation_nccl.within(hardware), product=product),
            network,
            gdr,
        )
    if world.fault("nccl_socket_fallback"):
        busbw, network, gdr = validation_nccl.SOCKET, "Socket", False
    if world.fault("nccl_gdr_disabled"):
        busbw, gdr = busbw * WITHOUT_GDR, False
    slow = busbw * SLOW_LARGE if world.fault("fabric_congested") else 0.0
    wrong = 96 if world.fault("nccl_wrong_data") else 0
    return Communicator(hosts=tuple(hosts), gpus=gpus, busbw=busbw, product=product, slow_at=slow, wrong=wrong), network, gdr


def _retry_exceeded(host: str) -> Iterator[str]:
    yield "# Collective test starting: all_reduce_perf"
    yield (
        f"{host}:4003:4103 [3] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.42.3.9<53908> with status=12 "
        "opcode=129 len=1048576 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 hca mlx5_3"
    )
    yield f"{host}:4003:4103 [3] NCCL INFO transport/net.cc:1362 -> 6"


# ---- DCGM ----------------------------------------------------------------------------------------------------------------------

_TESTS = (
    ("Deployment", "software", 1),
    ("Hardware", "memory", 2),
    ("Integration", "pcie", 2),
    ("Hardware", "diagnostic", 3),
    ("Integration", "nvbandwidth", 3),
    ("Stress", "memory_bandwidth", 3),
    ("Stress", "targeted_stress", 3),
    ("Stress", "targeted_power", 3),
    ("Stress", "memtest", 4),
    ("Stress", "pulse_test", 4),
)
"""Category, test, and the first level that runs it (`steps/docs/facts/acceptance.md`, DCGM diag)."""


@check("dcgm")
def dcgm(world: World, pod: Obj, node: str) -> Behaviour:
    """Report what `workflows/stages/scripts/dcgm.sh` reports."""
    level = int(environment(pod).get("LEVEL", "1"))
    tests = [(category, _test(world, node, category, name)) for category, name, least in _TESTS if level >= least]
    categories = [
        {"category": category, "tests": [test for group, test in tests if group == category]}
        for category in dict.fromkeys(group for group, _ in tests)
    ]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "metadata": {"version": "4.6.0", "Driver Version Detected": world.hardware(node).driver},
    }
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    failed = any(test["test_summary"]["status"] == "Fail" for _, test in tests)
    message = {"node": node, "exits": [226 if failed else 0], "packed": pack(text)}
    seconds = {1: 10.0, 2: 120.0, 3: 900.0}.get(level, 3600.0)
    return Exit(message=message, log=text, seconds=seconds)


def _test(world: World, node: str, category: str, name: str) -> Obj:
    gpus, status = world.host(node).gpus, "Pass"
    if category != "Deployment" and world.fault("dcgm_skips_everything", node):
        status = "Skip"
    results: list[Obj] = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status} for gpu in range(gpus)]
    if name == "memory" and world.fault("dcgm_memory_fault", node):
        message_text = "GPU 5 had uncorrectable memory errors (ECC, double bit): row remapping failed"
        warning = {"warning": message_text, "error_id": 20, "error_category": 2, "error_severity": 4}
        results[min(5, gpus - 1)] |= {"status": "Fail", "warnings": [warning]}
        status = "Fail"
    return {"name": name, "results": results, "test_summary": {"status": status}}


ROLES = (MpiOperator,)
