"""Stage validation: output of nccl-tests and of NCCL over simulated GPUs and adapters, in the formats of these tools.

Formats: https://github.com/NVIDIA/nccl-tests and https://github.com/NVIDIA/nccl.
Figures: `steps/docs/facts/acceptance.md`, expected bus bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from workflows.rehearsal.simulator.machines.simulated_fleet import HardwareProfile
from workflows.rehearsal.simulator.stages.validation import validation_failures
from workflows.rehearsal.simulator.world import World

INTRA = {
    "NVIDIA-A100-SXM4-80GB": 236.0,
    "NVIDIA-H100-80GB-HBM3": 477.0,
    "NVIDIA-H200": 474.0,
    "NVIDIA-B200": 739.0,
    "NVIDIA-L40S": 24.0,
}
"""Bus bandwidth in GB/s that an all-reduce over the eight GPUs of one machine approaches at large sizes, by GPU product."""

SHARE = 0.965
"""Share of all ports' line rate that a large all-reduce between machines reaches.

It is 386 of 400 GB/s with 64 × H100 (https://github.com/coreweave/nccl-tests).
"""

SOCKET = 4.1
"""Bus bandwidth in GB/s between machines over TCP."""

RAMP = 0.11
"""Share of the bandwidth that an all-reduce of 512 MiB lacks; it halves with every doubling of the size."""

NCCL = "2.26.2+cuda12.8"


class Communicator(Struct, frozen=True, kw_only=True):
    """The GPUs of one collective: hosts by name, GPUs on each, and the bus bandwidth in GB/s that it reaches at large sizes.

    `slow_at`, if not 0, is the bandwidth at the largest size; `wrong` is the number of wrong elements there. `operation` is
    `all_reduce`, `all_gather` or `alltoall`.
    """

    hosts: tuple[str, ...]
    gpus: int
    busbw: float
    product: str
    slow_at: float = 0.0
    wrong: int = 0
    operation: str = "all_reduce"

    @property
    def ranks(self) -> int:
        """The number of ranks, one for each GPU."""
        return len(self.hosts) * self.gpus


def node_bandwidth(hardware: HardwareProfile) -> float:
    """Return the bus bandwidth in GB/s between the GPUs of a machine."""
    return INTRA.get(hardware.product, 200.0)


def fabric_bandwidth(hardware: HardwareProfile) -> float:
    """Return the bus bandwidth in GB/s between machines over all fabric ports of each."""
    return SHARE * hardware.nics * hardware.nic_gbit / 8


def size_of(text: str) -> int:
    """Return a size such as `8G` in bytes; K, M and G are powers of 1024."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * factor


def table(shape: Communicator, first: str, last: str, jitter: float) -> Iterator[str]:
    """Yield the lines that a program of nccl-tests prints in one run over sizes from `first` to `last`, such as `1G`.

    `jitter` in [-1, 1] moves the figures by up to one percent.
    """
    low, high = size_of(first), size_of(last)
    yield "# nccl-tests version 2.17.8 nccl-headers=22602 nccl-library=22602"
    yield f"# Collective test starting: {shape.operation}_perf"
    yield f"# nThread 1 nGpus 1 minBytes {low} maxBytes {high} step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1"
    yield "#"
    yield "# Using devices"
    yield from _devices(shape)
    yield "#"
    yield f"#{'out-of-place':>72}{'in-place':>33}"
    yield "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
    yield "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)"
    figures = [*_rows(shape, low, high, jitter)]
    # only a reduction works on all elements in every rank; the others count those of one rank
    reduces = shape.operation == "all_reduce"
    elements, kind = (4, "sum") if reduces else (4 * shape.ranks, "none")
    for size, outer, inner, wrong in figures:
        # alltoall cannot check data in place
        sides = f"{_side(shape, size, outer, wrong)}{_side(shape, size, inner, None if shape.operation == 'alltoall' else 0)}"
        yield f"{size:12d}{size // elements:14d}{'float':>10}{kind:>8}{-1:>8}{sides}"
    yield f"# Out of bounds values : {bool(shape.wrong):d} {'FAILED' if shape.wrong else 'OK'}"
    yield f"# Avg bus bandwidth    : {sum(outer + inner for _, outer, inner, _ in figures) / max(2 * len(figures), 1):g}"
    yield "#"
    yield f"# Collective test concluded: {shape.operation}_perf"


def _devices(shape: Communicator) -> Iterator[str]:
    name = shape.product.replace("-", " ")
    for rank in range(shape.ranks):
        host, device = shape.hosts[rank // shape.gpus], rank % shape.gpus
        bus = f"0000:{27 + 16 * device:02x}:00"
        yield f"#  Rank {rank:2d} Group  0 Pid {4000 + device:6d} on {host:>10} device {device:2d} [{bus}] {name}"


def _rows(shape: Communicator, low: int, high: int, jitter: float) -> Iterator[tuple[int, float, float, int]]:
    size = low
    while size <= high:
        reached = shape.busbw * (1 - RAMP * (1 << 30) / size / 2) * (1 + jitter / 100)
        # Only the last row may be slow: the average over all sizes then hides it.
        if size * 2 > high and shape.slow_at:
            reached = shape.slow_at
        yield size, reached, reached * 0.998, shape.wrong if size * 2 > high else 0
        size *= 2


def _side(shape: Communicator, size: int, busbw: float, wrong: int | None) -> str:
    """Return time in µs, algorithm bandwidth, bus bandwidth (GB/s) and wrong elements, formatted for one side of a row.

    Bus bandwidth is algorithm bandwidth times (n - 1) / n for n ranks, and twice that in a reduction.
    """
    factor = 2 if shape.operation == "all_reduce" else 1
    algbw = busbw * shape.ranks / (factor * (shape.ranks - 1)) if shape.ranks > 1 else busbw
    return f"{_short(size / algbw / 1000, 9)}{algbw:8.2f}{busbw:8.2f}{'N/A' if wrong is None else wrong:>8}"


def _short(value: float, width: int) -> str:
    """Return a number as nccl-tests prints it: with two decimals, or fewer if it would exceed seven characters."""
    return next(text for digits in (2, 1, 0) if len(text := f"{value:.{digits}f}") <= 7 or digits == 0).rjust(width)


# ---- NCCL_DEBUG=INFO -----------------------------------------------------------------------------------------------------------


def debug_info(
    shape: Communicator, adapters: Sequence[Sequence[str]], *, network: str, gdr: bool, hosts: int | None = None
) -> Iterator[str]:
    """Yield NCCL's debug lines about each rank's network and the channels between neighbouring hosts (NCCL 2.26 to 2.30).

    `adapters` are the ports of each host, such as `mlx5_0:1/IB`; `network` is `IB` or `Socket`; `gdr` is True with GPUDirect RDMA.
    Only the first `hosts` write theirs; default: all.
    """
    lists = [" ".join(f"[{number}]{port}" for number, port in enumerate(ports)) for ports in adapters]
    for rank in range(shape.ranks if hosts is None else min(hosts * shape.gpus, shape.ranks)):
        device = rank % shape.gpus
        address, own = validation_failures.address(rank // shape.gpus), adapters[rank // shape.gpus]
        head = f"{shape.hosts[rank // shape.gpus]}:{4000 + device}:{4100 + device} [{device}] NCCL INFO"
        if not device:
            yield f"{head} NCCL version {NCCL}"
        if network == "IB":
            yield f"{head} NET/IB : Using {lists[rank // shape.gpus]} [RO]; OOB eth0:{address}<0>"
        else:
            yield f"{head} NET/IB : No device found."
            yield f"{head} NET/Socket : Using [0]eth0:{address}<0>"
        yield f"{head} Using network {network}"
        if network == "IB" and device < len(own):
            name = own[device].partition(":")[0]
            yield f"{head} NET/IB : GPU Direct RDMA {'Enabled' if gdr else 'Disabled'} for HCA {device} '{name}'"
        yield from (f"{head} {line}" for line in _channels(shape, rank, network, gdr))


def _channels(shape: Communicator, rank: int, network: str, gdr: bool) -> Iterator[str]:
    """Yield the debug lines of a rank's two channels to the same device of the next host, and of the end of its set-up."""
    device, peer = rank % shape.gpus, (rank + shape.gpus) % max(shape.ranks, 1)
    suffix = "/GDRDMA" if gdr and network == "IB" else ""
    for channel in (device, device + shape.gpus) if len(shape.hosts) > 1 else ():
        yield f"Channel {channel:02d}/0 : {rank}[{device}] -> {peer}[{device}] [send] via NET/{network}/{device}{suffix}"
    yield f"Connected all rings, use ring PXN 0 GDR {int(gdr and network == 'IB')}"
    comm = f"comm 0x55cc8aa86c{rank % 256:02x} rank {rank} nRanks {shape.ranks} nNodes {len(shape.hosts)} localRanks {shape.gpus}"
    yield f"{comm} localRank {device} MNNVL 0 - Init COMPLETE"


def join_lines(lines: Iterable[str]) -> str:
    """Return the lines as one text, each with a newline at its end."""
    return "".join(f"{line}\n" for line in lines)


def check_settings(environment: Mapping[str, str]) -> tuple[str, str, int]:
    """Return first size, last size and number of runs from the environment variables of an NCCL check's script."""
    return environment.get("FIRST", "1G"), environment.get("LAST", "8G"), int(environment.get("RUNS", "3"))


RUN_SECONDS = 45.0
"""Virtual seconds of one run of nccl-tests, its start included."""

SLOW_LARGE = 0.81
"""Share of the bandwidth that is left if only large messages are slow."""


def jitter(world: World, name: str, run: int) -> float:
    """Return how a run of a test deviates from its mean, in [-1, 1], as the rehearsal's seed has it."""
    return 2 * world.chance(f"validation/nccl/{name}/{run}") - 1
