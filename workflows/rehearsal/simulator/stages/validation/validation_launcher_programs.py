"""Stage validation: the programs that a simulated launcher runs after all_reduce over all nodes, with the marks of its script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from workflows.rehearsal.simulator.api.api_kinds import Obj
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.stages.validation import fabric_links, launcher_log
from workflows.rehearsal.simulator.stages.validation.fabric_communicators import adapters, simulated_collective, simulated_fabric
from workflows.rehearsal.simulator.stages.validation.validation_nccl_output import (
    Communicator,
    check_settings,
    debug_info,
    jitter,
    join_lines,
    table,
)
from workflows.rehearsal.simulator.world import World

LATENCY_US, STAGES_US = 1.9, 1.6
"""Latency in µs of an MPI message over InfiniBand, and what each doubling of the machines adds to a reduction."""
OSU_VERSION = "7.2"


def output(world: World, pod: Obj, own: Sequence[Obj], programs: Iterable[str]) -> Iterator[str]:
    """Yield the log of each program, as `workflows/stages/scripts/nccl_inter.sh` writes it; `own` are the workers."""
    hosts, nodes = [worker["metadata"]["name"] for worker in own], [simulated_pods.node(worker) for worker in own]
    settings = simulated_pods.environment(pod)
    first, last, runs = check_settings(settings)
    gpus = int(settings["PER_NODE"])
    for name in programs:
        if name == "scaling":
            for count in points(len(nodes)):
                formed = simulated_fabric(world, hosts[:count], nodes[:count], gpus)
                yield from _runs(world, formed, nodes, last, last, 1)
        elif name.startswith("osu_"):
            yield _section(
                name, len(nodes) if name == "osu_allreduce" else 2, launcher_log.shorten_part(_osu(world, name, nodes)), over="ucx"
            )
        else:
            yield from _runs(world, simulated_collective(world, name, hosts, nodes, gpus), nodes, first, last, runs)


def points(nodes: int) -> list[int]:
    """Return the numbers of nodes of a scaling curve below that of all."""
    return [2**power for power in range(1, nodes.bit_length() + 1) if 2**power < nodes]


def _runs(
    world: World, formed: tuple[Communicator, str, bool], nodes: Sequence[str], first: str, last: str, runs: int
) -> Iterator[str]:
    shape, network, gdr = formed
    for run in range(runs):
        # all hosts write lines of the same kinds, and 10,000 hosts write half a million of them
        debug = debug_info(shape, adapters(world, nodes), network=network, gdr=gdr, hosts=1) if run == 0 else ()
        figures = table(shape, first, last, jitter(world, f"{shape.operation}/{len(shape.hosts)}", run))
        yield _section(shape.operation, len(shape.hosts), launcher_log.shorten_part(figures, debug, len(shape.hosts)))


def _section(name: str, nodes: int, lines: Iterable[str], over: str = "nccl") -> str:
    return join_lines([f"@@ bringup begin {name} nodes {nodes} over {over}", *lines, "@@ bringup end 0"])


# ---- OSU ---------------------------------------------------------------------------------------------------------------------


def _osu(world: World, name: str, nodes: Sequence[str]) -> Iterator[str]:
    """Yield the table of an OSU test, which uses one rail between the first two machines, or between all (allreduce)."""
    hardware = world.hardware(nodes[0])
    rate = min(fabric_links.share(world, nodes[0], nodes[1], 0), fabric_links.ring_share(world, nodes, 1) if "all" in name else 1.0)
    bytes_a_us = hardware.nic_gbit * 125 * fabric_links.SHARE * rate
    yield from _heading(name)
    low, high = (4, 1 << 20) if name == "osu_allreduce" else (1, 4 << 20)
    size, steps = low, STAGES_US * (len(nodes).bit_length() - 1)
    while size <= high:
        time = LATENCY_US + size / bytes_a_us
        value = {"osu_latency": time, "osu_bw": size / (0.35 + size / bytes_a_us), "osu_allreduce": 2 * time + steps}[name]
        yield f"{size:<12d}{value:>18.2f}"
        size *= 2


def _heading(name: str) -> Iterator[str]:
    words, column = {
        "osu_latency": ("Latency", "Latency (us)"),
        "osu_bw": ("Bandwidth", "Bandwidth (MB/s)"),
        "osu_allreduce": ("Allreduce Latency", "Avg Latency(us)"),
    }[name]
    yield f"# OSU MPI {words} Test v{OSU_VERSION}"
    yield f"# Size      {column:>20}"
