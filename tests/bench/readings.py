"""Measure `bringup read` on a log of NCCL: CPU time and memory, which must not grow with the log. Needs no recordings."""

import random
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from figures import Figures

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from steps.readings import recognition  # noqa: E402  # this folder is no package
from steps.readings.site_values import SiteValues  # noqa: E402

MEGABYTE = 1_000_000
SIZE, LIMIT = 10 * MEGABYTE, 0.5
LARGE = 60 * MEGABYTE
GROWTH = 4.0
"""MiB that the memory for six times as long a log may be more: parts that wait for the collector."""
PART = 1 << 20
TRIES = 3
SEED = 7
SITE = SiteValues(busbw_floor_gbps=300.0, rdma_expected=True, gdr_expected=True)
TABLE = """\
# nccl-tests version 2.17.8 nccl-headers=22902 nccl-library=22902
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 4294967296 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
  4294967296    1073741824     float     sum      -1  22474.0  191.11  358.33       0  22480.0  191.06  358.23       0
  8589934592    2147483648     float     sum      -1  44474.0  193.15  362.15       0  44480.0  193.12  362.10       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 360.2
# Collective test concluded: all_reduce_perf
"""


def log(size: int) -> Iterator[str]:
    """Lines of a 16-rank job with NCCL_DEBUG=INFO, as many as `size` characters take, and the table of its test."""
    chance, written = random.Random(SEED), 0
    ranks = "".join(
        f"#  Rank {r:2} Group  0 Pid {r + 9} on gpu{r // 8:03} device {r % 8} [0000:0f:00] NVIDIA H100\n" for r in range(16)
    )
    while written < size:
        for rank in range(16):
            head = f"gpu{rank // 8:03}:{2000 + rank}:{2100 + rank} [{rank % 8}] NCCL INFO"
            peer = (rank + 1) % 16
            via = "[send] via NET/IB/3/GDRDMA" if rank // 8 != peer // 8 else "via P2P/CUMEM/read"
            lines = [f"{head} Channel {channel:02}/0 : {rank}[{rank % 8}] -> {peer}[{peer % 8}] {via}" for channel in range(64)]
            lines += [
                f"{head} Connected all rings, use ring PXN 0 GDR 1",
                f"{head} NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
            ]
            lines += [
                f"{head} AllReduce: opCount {chance.randrange(1 << 20):x} sendbuff 0x7f00 count 2147483648 datatype 7 [nranks=16]"
            ] * 20
            text = "\n".join(lines) + "\n"
            written += len(text)
            yield text
    head, mark, rows = TABLE.partition("#       size")
    yield head + ranks + mark + rows


def parts(path: Path) -> Iterator[str]:
    """Parts of a file, as the command reads it."""
    with path.open(encoding="utf-8") as file:
        while text := file.read(PART):
            yield text


def seconds(path: Path) -> float:
    """Least CPU seconds of a reading."""
    best = float("inf")
    for _ in range(TRIES):
        before = time.process_time()
        reading = recognition.reading_of(parts(path), SITE)
        best = min(best, time.process_time() - before)
        assert reading.is_pass, reading
    return best


def peak(path: Path) -> float:
    """MiB that a reading takes at most."""
    tracemalloc.start()
    recognition.reading_of(parts(path), SITE)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most / (1 << 20)


def command(path: Path) -> float:
    """CPU seconds of the whole command, with its start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [str(Path(sys.executable).with_name("bringup")), "read", str(path), "--expect", "busbw_floor_gbps=300"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure."""
    figures = Figures("readings of captured output")
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.log", Path(folder) / "large.log"
        for path, size in ((small, SIZE), (large, LARGE)):
            with path.open("w") as file:
                file.writelines(log(size))
        figures.at_most(f"NCCL log of {SIZE // MEGABYTE} MB, CPU", seconds(small), LIMIT, "s")
        first, second = peak(small), peak(large)
        figures.note("memory for it", f"{first:.1f} MiB")
        figures.at_most(f"memory more for a log of {LARGE // MEGABYTE} MB", max(0.0, second - first), GROWTH, "MiB")
        figures.note("bringup read of it, CPU with its start", f"{command(small):.3f} s")
    figures.exit()


if __name__ == "__main__":
    main()
