"""Stage validation: workloads of level full on simulated nodes (fio, STREAM, torchrun), which report as their scripts do."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from workflows.rehearsal.simulator.api.api_kinds import PODS, Obj
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, check, environment, pack
from workflows.rehearsal.simulator.stages.validation.fabric_communicators import simulated_fabric
from workflows.rehearsal.simulator.world import World

STORAGE_MB_S, WRITE_SHARE, STORAGE_IOPS = 5200.0, 0.6, 90_000.0
"""Sequential reads of one node from the simulated storage, the share that its writes reach, and random reads of 4 KiB a second."""
CONGESTED_MOUNT = 0.15
"""Share that is left to a node whose mount goes through one slow path (fault `storage_slow_on_some_nodes`)."""
MEMORY_MB_S = 660_000.0
"""Rate of STREAM's Triad on the simulated machines, near that of two sockets with twelve channels of DDR5-4800 each."""
FIO_SECONDS, TORCH_SECONDS = 300.0, 70.0


# ---- fio and STREAM ----------------------------------------------------------------------------------------------------------


@check("benchmarks")
def benchmarks(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the benchmarks of a node, which report as `workflows/stages/scripts/node_benchmarks.sh` does."""
    storage = bool(environment(pod).get("FOLDER"))
    text = (_fio(world, node) if storage else "") + "@@ bringup stream\n" + "".join(f"{line}\n" for line in _stream(world, node))
    message = {"node": node, "fio": 0 if storage else 127, "stream": 0, "packed": pack(text)}
    return Exit(message=message, log=text, seconds=FIO_SECONDS)


def _fio(world: World, node: str) -> str:
    share = CONGESTED_MOUNT if world.fault("storage_slow_on_some_nodes", node) else 1.0
    share *= 1 - 0.04 * world.chance(f"validation/fio/{node}")
    idle = {"bw_bytes": 0, "iops": 0.0}

    def job(name: str, megabytes: float, block: int) -> Obj:
        figures = {"bw_bytes": int(megabytes * 1e6), "iops": round(megabytes * 1e6 / block, 2)}
        own, other = ("read", "write") if name.endswith("read") else ("write", "read")
        return {"jobname": name, "error": 0, own: figures, other: idle}

    reads, small = STORAGE_MB_S * share, STORAGE_IOPS * share * 4096 / 1e6
    jobs = [
        job("seq_write", reads * WRITE_SHARE, 1 << 20),
        job("seq_read", reads, 1 << 20),
        job("rand_write", small * WRITE_SHARE, 4096),
        job("rand_read", small, 4096),
    ]
    return msgspec.json.format(msgspec.json.encode({"fio version": "fio-3.36", "jobs": jobs}), indent=2).decode() + "\n"


def _stream(world: World, node: str) -> Iterator[str]:
    yield "STREAM version $Revision: 5.10 $"
    yield "Function    Best Rate MB/s  Avg time     Min time     Max time"
    for kernel, share in (("Copy", 0.97), ("Scale", 0.96), ("Add", 0.99), ("Triad", 1.0)):
        rate = MEMORY_MB_S * share * (1 - 0.01 * world.chance(f"validation/stream/{node}/{kernel}"))
        seconds = 16e9 / (rate * 1e6)
        yield f"{kernel + ':':<12}{rate:12.1f} {seconds:12.6f} {seconds:12.6f} {seconds * 1.01:12.6f}"
    yield "Solution Validates: avg error less than 1.000000e-13 on all three arrays"


# ---- torchrun ----------------------------------------------------------------------------------------------------------------


@check("training")
def training(world: World, pod: Obj, node: str) -> Behaviour:
    """Play a pod of the training job, which reports as `workflows/stages/scripts/torch_training.sh` does."""
    if world.fault("torchrun_hangs"):
        nothing = {"node": node, "exit": 124, "result": {}, "channels": {"gdr": 0, "rdma": 0, "socket": 0}}
        return Exit(message=nothing, log="torch.distributed.DistStoreError: Timed out after 301 seconds\n", seconds=TORCH_SECONDS)
    members = world.select(PODS, pod["metadata"]["namespace"], {simulated_pods.CHECK: "training"})
    nodes = sorted(filter(None, map(simulated_pods.node, members))) or [node]
    gpus = world.host(node).gpus
    shape, network, gdr = simulated_fabric(world, nodes, nodes, gpus)
    busbw = shape.busbw * (1 - 0.01 * world.chance(f"validation/torch/{node}"))
    # two channels of each GPU to the other node, as NCCL's debug lines have them
    channels = 2 * gpus
    rdma = channels if network == "IB" else 0
    counted = {"gdr": rdma if gdr else 0, "rdma": rdma, "socket": channels - rdma}
    result = {"ranks": gpus * len(nodes), "busbw": round(busbw, 2), "first_loss": 2.03, "last_loss": 0.41, "torch": "2.9.0"}
    return Exit(message={"node": node, "exit": 0, "result": result, "channels": counted}, seconds=TORCH_SECONDS)
