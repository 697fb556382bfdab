"""Stage validation: programs of checks inside a simulated node, whose reports have the formats of the tools that they run."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from workflows.rehearsal.simulator.api.api_kinds import Obj
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, check, environment, pack
from workflows.rehearsal.simulator.stages.validation import fabric_links, validation_failures, validation_gpu_states
from workflows.rehearsal.simulator.stages.validation.validation_nccl_output import (
    RUN_SECONDS,
    SLOW_LARGE,
    Communicator,
    check_settings,
    fabric_bandwidth,
    jitter,
    join_lines,
    node_bandwidth,
    table,
)
from workflows.rehearsal.simulator.world import World

DEGRADED = 0.47
"""Share of the bandwidth that is left with half of the NVLinks gone."""

# ---- NCCL inside a node --------------------------------------------------------------------------------------------------------


@check("nccl-intra")
def nccl_intra(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `nccl-intra` on a node: report exit codes and output of all_reduce_perf over the node's GPUs.

    The report has the form that `workflows/stages/scripts/nccl_intra.sh` prints.
    """
    _, _, runs = check_settings(environment(pod))
    programs = 2 if environment(pod).get("ADAPTERS") == "1" else 1
    return Exit(seconds=RUN_SECONDS * runs * programs, outcome=functools.partial(_intra_outcome, world, pod, node))


def _intra_outcome(world: World, pod: Obj, node: str) -> Exit:
    first, last, runs = check_settings(environment(pod))
    host = str(pod["spec"].get("hostname") or pod["metadata"]["name"])
    if world.fault("nvswitch_not_initialised", node):
        failure = f"{host}: Test CUDA failure common.cu:941 'system not yet initialized'\n .. {host} pid 71: Test failure\n"
        text, code = failure * runs, 2
    elif world.fault("nccl_shm_full", node):
        text, code = join_lines(validation_failures.failed_run(world, "nccl_shm_full", [host], 0) * runs), 3
    else:
        shape = _machine(world, node, host)
        lines = (line for run in range(runs) for line in table(shape, first, last, jitter(world, node, run)))
        text, code = join_lines(lines), 0
    exits = [code] * runs
    fabric_exits = exits if environment(pod).get("ADAPTERS") == "1" else []
    text += join_lines(_over_adapters(world, node, host, last, runs)) if fabric_exits and not code else ""
    message = {"node": node, "exits": exits, "fabric_exits": fabric_exits, "packed": pack(text)}
    return Exit(message=message, log=text)


def _over_adapters(world: World, node: str, host: str, last: str, runs: int) -> Iterator[str]:
    """Yield the output of all_reduce_perf with P2P and shared memory off, with NCCL's lines shortened as the script does it.

    Every ring passes all adapters of the machine, so it is as fast as the slowest of them.
    """
    hardware, gpus = world.hardware(node), world.host(node).gpus
    busbw = fabric_bandwidth(hardware) * fabric_links.slowest_port(world, node, hardware.nics)
    shape = Communicator(hosts=(host,), gpus=gpus, busbw=busbw, product=hardware.product)
    head = f"{host}:4000:4100 [0] NCCL INFO"
    ports = " ".join(f"[{number}]mlx5_{number}:1/{hardware.nic_link}" for number in range(hardware.nics))
    yield "@@ fabric 0"
    yield f"{head} NET/IB : Using {ports} [RO]; OOB eth0:{validation_failures.address(0)}<0>"
    yield f"{head} Using network IB"
    yield from (f"{head} NET/IB : GPU Direct RDMA Enabled for HCA {nic} 'mlx5_{nic}'" for nic in range(hardware.nics))
    yield f"{head} Connected all rings, use ring PXN 0 GDR 1"
    yield from table(shape, last, last, jitter(world, f"adapters/{node}", 0))
    for nic in range(min(hardware.nics, gpus)):
        way = f"Channel {nic:02d}/0 : {nic}[{nic}] -> {(nic + 1) % gpus}[{(nic + 1) % gpus}] [send] via NET/IB/{nic}/GDRDMA"
        yield f"{head} {way} [repeated 15 more times]"
    for run in range(1, runs):
        yield from table(shape, last, last, jitter(world, f"adapters/{node}", run))


def _machine(world: World, node: str, host: str) -> Communicator:
    hardware, gpus = world.hardware(node), world.host(node).gpus
    full = node_bandwidth(hardware)
    visible = gpus - bool(world.fault("nccl_gpu_missing", node))
    return Communicator(
        hosts=(host,),
        gpus=visible,
        busbw=full * (DEGRADED if world.fault("nvlink_degraded", node) else 1),
        product=hardware.product,
        slow_at=full * SLOW_LARGE if world.fault("nccl_slow_large_messages", node) else 0.0,
    )


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
"""Category, name and lowest level of each `dcgmi diag` test (`steps/docs/facts/acceptance.md`, DCGM diag)."""


@check("dcgm")
def dcgm(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `dcgm` on a node: host facts under load, GEMM, nvbandwidth, and the JSON output of `dcgmi diag`.

    The report has the form that `workflows/stages/scripts/dcgm.sh` prints.
    """
    seconds = {1: 10.0, 2: 120.0, 3: 900.0}.get(int(environment(pod).get("LEVEL", "1")), 3600.0)
    return Exit(seconds=seconds + LOAD_SECONDS, outcome=functools.partial(_dcgm_outcome, world, pod, node))


def _dcgm_outcome(world: World, pod: Obj, node: str) -> Exit:
    settings, gpus = environment(pod), validation_gpu_states.gpus(world, node)
    text, code = _diagnostic(world, node, int(settings.get("LEVEL", "1")))
    hardware = world.hardware(node)
    parts = [
        ("query", join_lines(validation_gpu_states.query(world, node, gpus))),
        ("links", join_lines(validation_gpu_states.links(hardware, gpus))),
        ("kernel", join_lines(validation_gpu_states.kernel_log(world, node, gpus))),
        ("adapters", join_lines(validation_gpu_states.adapters(world, node))),
        ("gemm", join_lines(validation_gpu_states.gemm(world, node, gpus))),
    ]
    if settings.get("COPIES") == "1":
        parts.append(("nvbandwidth", join_lines(validation_gpu_states.copies(world, node, gpus))))
    whole = "".join(f"@@ {name} 0\n{output}" for name, output in parts) + f"@@ dcgm {code}\n{text}"
    message = {"node": node, "exits": [code], "packed": pack(whole)}
    return Exit(message=message, log=whole)


LOAD_SECONDS = 70.0
"""Virtual seconds in which a GEMM loads the GPUs and nvbandwidth runs."""


def _diagnostic(world: World, node: str, level: int) -> tuple[str, int]:
    """Return output and exit code of `dcgmi diag -j` at a level."""
    tests = [(category, _test(world, node, category, name)) for category, name, least in _TESTS if level >= least]
    categories = [
        {"category": category, "tests": [test for group, test in tests if group == category]}
        for category in dict.fromkeys(group for group, _ in tests)
    ]
    metadata = {"version": "4.6.0", "Driver Version Detected": world.hardware(node).driver}
    document = {"DCGM Diagnostic": {"test_categories": categories}, "metadata": metadata}
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    failed = any(test["test_summary"]["status"] == "Fail" for _, test in tests)
    return text, 226 if failed else 0


def _test(world: World, node: str, category: str, name: str) -> Obj:
    gpus, status = world.host(node).gpus, "Pass"
    if category != "Deployment" and world.fault("dcgm_skips_everything", node):
        status = "Skip"
    results: list[Obj] = [{"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status} for gpu in range(gpus)]
    if name == "memory" and world.fault("dcgm_memory_fault", node):
        why = "GPU 5 had uncorrectable memory errors (ECC, double bit): row remapping failed"
        warning = {"warning": why, "error_id": 20, "error_category": 2, "error_severity": 4}
        results[min(5, gpus - 1)] |= {"status": "Fail", "warnings": [warning]}
        status = "Fail"
    return {"name": name, "results": results, "test_summary": {"status": status}}
