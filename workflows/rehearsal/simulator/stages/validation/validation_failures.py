"""Stage validation: logs of NCCL tests in which one rank fails first and the others only report its end.

Wordings: NVIDIA/nccl src/misc/socket.cc, src/misc/ibvwrap.cc, src/misc/shmutils.cc, src/init.cc, src/transport/net_ib.cc;
NVIDIA/nccl-tests src/common.cu.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from workflows.rehearsal.simulator.world import World

DEVICE = 3
"""GPU of the rank that fails on each host; its adapter has the same number."""


class Rank(NamedTuple):
    """A rank in a failing run: its host, the address of its pod, and that of the next host, to which it connects."""

    host: str
    address: str
    next_address: str

    def warn(self, text: str) -> str:
        """Return a warning of NCCL as this rank prints it; `text` begins with the place in NCCL's source."""
        place, _, message = text.partition(" ")
        return f"{self.host}:{4000 + DEVICE}:{4100 + DEVICE} [{DEVICE}] {place} NCCL WARN {message}"

    def info(self, text: str) -> str:
        """Return a debug line of NCCL as this rank prints it."""
        return f"{self.host}:{4000 + DEVICE}:{4100 + DEVICE} [{DEVICE}] NCCL INFO {text}"


def address(host: int) -> str:
    """Return the address of the pod of the host with this number in the run."""
    return f"10.42.{1 + host // 250}.{2 + host % 250}"


def _gid(host_address: str, network: int) -> str:
    return f"::ffff:172.{network}.1.{host_address.rpartition('.')[2]}"


def _no_route(rank: Rank) -> Iterator[str]:
    where = f"{rank.next_address}<46873> returned No route to host(113)"
    yield rank.warn(f"misc/socket.cc:511 socketPollConnect: connect to {where}, exceeded error retry count after 35 attempts")
    yield rank.info("misc/socket.cc:584 -> 6")


def _gids(rank: Rank) -> Iterator[str]:
    gids = f"local GID {_gid(rank.address, 20)}, remote GID {_gid(rank.next_address, 21)}"
    state = f"on dev mlx5_{DEVICE}:1, curr state INIT, next state RTR, local GID index 3"
    yield rank.warn(f"misc/ibvwrap.cc:328 Call to ibv_modify_qp failed with 110 Connection timed out, {state}, {gids}")
    yield rank.info("transport/net_ib.cc:1186 -> 2")


def _shm(rank: Rank) -> Iterator[str]:
    full = "error: No space left on device (28)"
    yield rank.warn(f"misc/shmutils.cc:87 Error: failed to extend /dev/shm/nccl-Qk2xLa to 33030532 bytes, {full}")
    segment = "Error while creating shared memory segment /dev/shm/nccl-Qk2xLa (size 33030528)"
    yield rank.warn(f"misc/shmutils.cc:129 {segment}, {full}")


def _memlock(rank: Rank) -> Iterator[str]:
    yield rank.warn("misc/ibvwrap.cc:262 Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory")
    yield rank.info("transport/net_ib.cc:1411 -> 2")


def _versions(rank: Rank) -> Iterator[str]:
    yield rank.warn("init.cc:993 Mismatched NCCL version detected : rank 0 version 22602 rank 9 version 21903")


def _port(rank: Rank) -> Iterator[str]:
    yield rank.warn(f"transport/net_ib.cc:660 NET/IB : mlx5_{DEVICE}:1 Got async event : port error")
    yield _completion(rank, rank.next_address, 5, 249)


def _completion(rank: Rank, peer: str, status: int, vendor: int) -> str:
    text = f"peer {peer}<39411> with status={status} opcode=0 len=0 vendor err {vendor} (Recv) hca mlx5_{DEVICE}"
    return rank.warn(f"transport/net_ib.cc:1990 NET/IB: Got completion from {text}")


def _gone(rank: Rank) -> Iterator[str]:
    """Yield what a rank reports once the failing one has ended."""
    yield rank.warn(f"misc/socket.cc:58 socketProgress: Connection closed by remote peer {rank.next_address}<39411>")
    yield _completion(rank, rank.next_address, 12, 129)


def _ended(rank: Rank, reason: str) -> Iterator[str]:
    yield f"{rank.host}: Test NCCL failure common.cu:1012 '{reason} (run with NCCL_DEBUG=INFO for details) / '"
    yield f" .. {rank.host} pid {4000 + DEVICE}: Test failure common.cu:891"


GONE, SYSTEM, USAGE = "remote process exited or there was a network error", "unhandled system error", "invalid usage"
FAILURES: dict[str, tuple[Callable[[Rank], Iterator[str]], str]] = {
    "nccl_no_route": (_no_route, GONE),
    "nccl_gid_unreachable": (_gids, SYSTEM),
    "nccl_shm_full": (_shm, SYSTEM),
    "nccl_memlock": (_memlock, SYSTEM),
    "nccl_two_versions": (_versions, USAGE),
    "nccl_port_error": (_port, GONE),
}
"""Fault → the lines of the rank that fails first, and the reason that nccl-tests gives for its end."""


def failed_run(world: World, fault: str, hosts: Sequence[str], victim: int) -> list[str]:
    """Return the lines of a run in which the rank on host number `victim` fails by a fault, with all ranks' lines merged.

    The seed of the rehearsal decides in which order they were merged.
    """
    first, reason = FAILURES[fault]
    ranks = [Rank(host, address(number), address((number + 1) % len(hosts))) for number, host in enumerate(hosts)]
    lines = [
        [*(first(rank) if number == victim else _gone(rank)), *_ended(rank, reason if number == victim else GONE)]
        for number, rank in enumerate(ranks)
    ]
    return ["# Collective test starting: all_reduce_perf", *_merged(world, f"validation/{fault}", lines)]


def _merged(world: World, key: str, lines: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of several ranks in an order that the seed decides; those of one rank keep theirs."""
    left = [list(rank) for rank in lines if rank]
    number = 0
    while left:
        rank = left[int(world.chance(f"{key}/{number}") * len(left))]
        yield rank.pop(0)
        left = [remaining for remaining in left if remaining]
        number += 1
