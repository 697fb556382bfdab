"""The first cause of a failed job is named, with host, adapter and peer, in whatever order the lines of its ranks were merged."""

import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract.node_tests.nccl import NcclWant
from steps.contract.verdict import CauseRank, ToolError
from steps.stages.shared import reader_errors, reader_mpi
from steps.stages.slurm import reader_slurm_errors
from steps.stages.validation import gate_nccl, reader_nccl, reader_nccl_errors

LOGS = Path(__file__).parent / "nccl_causes"
GATES = Path(__file__).parents[2] / "gates" / "validation"
SEED = int(os.environ.get("SEED", "20261128"))
EXPECTED = {
    "T01_no_route": ("dependency", "No route to host", "w-1", "", "10.42.3.19 (w-0)", "functional_no_route"),
    "T02_gid_unreachable": (
        "dependency",
        "::ffff:172.20.1.11",
        "w-1",
        "mlx5_1",
        "::ffff:172.21.1.12",
        "functional_gid_unreachable",
    ),
    "T04_shm_full": ("input", "/dev/shm", "g7", "", "", "intra_shm_full"),
    "T05_memlock": ("input", "locked memory", "w-1", "", "", "functional_memlock"),
    "T06_two_nccl_versions": ("input", "two NCCL versions", "w-1", "", "", "functional_two_nccl_versions"),
    "T07_port_error": ("hardware", "port error", "w-1", "mlx5_2", "", "functional_port_error"),
}
"""Log → class, a part of the cause, host, adapter and peer of its first cause, and the gate case with the log's reading."""

RANK = "{host}:80:131 [3] "
NET = f"{RANK}transport/net_ib.cc:1990 NCCL WARN NET/IB"
CAUSES = {
    "xid": "{host} kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    "port": f"{NET} : mlx5_2:1 Got async event : port error",
    "shm": f"{RANK}misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-a to 9 bytes: No space left on device",
    "memlock": f"{RANK}misc/ibvwrap.cc:262 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory",
    "route": f"{RANK}misc/socket.cc:511 NCCL WARN socketPollConnect: connect to 10.0.0.7<4687> returned No route to host(113)",
    "cuda": f"{RANK}enqueue.cc:10 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'",
    "completion": f"{NET}: Got completion from peer 10.0.0.7<394> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_4",
    "unknown": f"{RANK}plugin/net.cc:7 NCCL WARN the frobnicator is out of gas",
}
"""Lines that report a cause, the first causes first."""
CONSEQUENCES = (
    f"{RANK}NCCL INFO misc/socket.cc:584 -> 6",
    f"{RANK}misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer w-9.nccl<4687>",
    f"{NET}: Got completion from peer 10.0.0.8<394> with status=5 opcode=0 len=0 vendor err 249 (Recv) hca mlx5_2",
    "{host}: Test NCCL failure common.cu:1012 'remote process exited or there was a network error / '",
    " .. {host} pid 80: Test failure common.cu:891",
)


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


@pytest.mark.parametrize("name", EXPECTED)
def test_first_cause_stands_above_the_last_line(name: str) -> None:
    failure_class, cause, host, device, peer, _ = EXPECTED[name]
    first = reader_nccl_errors.read(log(name))[0]
    assert cause in first.cause
    assert (first.failure_class.value, first.host, first.device, first.peer) == (failure_class, host, device, peer)
    finding = gate_nccl.problem(reader_nccl.read(log(name)), NcclWant())
    assert finding is not None
    assert finding.failure_class.value == failure_class
    assert all(part in f"{finding.seen} {finding.next_step}" for part in (cause, host, device, peer.partition(" ")[0]))


@pytest.mark.parametrize("name", EXPECTED)
def test_gate_case_holds_what_is_read(name: str) -> None:
    case: dict[str, Any] = msgspec.json.decode((GATES / f"{EXPECTED[name][-1]}.json").read_bytes())
    seen = case["seen"]
    logs = [seen["log"]] if "log" in seen else [pod["log"] for pod in seen["pods"]]
    assert msgspec.to_builtins(reader_nccl.read(log(name)), str_keys=True) in [_tuples_as_lists(entry) for entry in logs]


def _tuples_as_lists(value: Any) -> Any:
    return msgspec.to_builtins(msgspec.convert(value, type(reader_nccl.read(""))))


def merged(lines_by_rank: list[list[str]], chance: random.Random) -> str:
    """Merge the lines of several ranks at random; the lines of one rank keep their order."""
    left = [list(lines) for lines in lines_by_rank if lines]
    result = []
    while left:
        lines = chance.choice(left)
        result.append(lines.pop(0))
        left = [lines for lines in left if lines]
    return "\n".join(result)


def ranks(chance: random.Random, *causes: str) -> list[list[str]]:
    """Return the lines of four ranks: each cause stands once, in a rank of its own, and consequences follow in all ranks."""
    result = []
    for number in range(4):
        host = f"w-{number}"
        own = [CAUSES[causes[number]]] if number < len(causes) else []
        result.append(
            [line.format(host=host) for line in (*own, *chance.sample(CONSEQUENCES, chance.randint(1, len(CONSEQUENCES))))]
        )
    return result


def test_order_of_the_ranks_does_not_change_the_cause() -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    order = list(CAUSES)
    for _ in range(150):
        causes = chance.sample(order, chance.randint(1, 3))
        lines = ranks(chance, *causes)
        readings = {reader_nccl_errors.read(merged(lines, chance)) for _ in range(6)}
        assert len({errors[0] for errors in readings}) == 1, causes
        assert next(iter(readings))[0] == known(min(causes, key=order.index), causes), causes


def known(cause: str, causes: list[str]) -> ToolError:
    return reader_nccl_errors.read(CAUSES[cause].format(host=f"w-{causes.index(cause)}"))[0]


def test_two_ranks_with_one_cause_are_told_alike() -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    lines = ranks(chance, "completion", "completion", "completion")
    assert len({reader_nccl_errors.read(merged(lines, chance))[0] for _ in range(50)}) == 1


def test_the_earlier_time_wins_within_one_cause() -> None:
    early, late = (f"[2026-11-28 10:00:0{second}] {CAUSES['completion']}" for second in (1, 2))
    text = "\n".join((late.format(host="w-0"), early.format(host="w-1")))
    assert [error.host for error in reader_nccl_errors.read(text)] == ["w-1", "w-0"]


def test_unknown_warning_is_quoted_and_ends_no_good_run() -> None:
    warning = CAUSES["unknown"].format(host="w-1")
    failed = reader_nccl.read(f"{warning}\nw-1: Test NCCL failure common.cu:1 'internal error / '\n")
    finding = gate_nccl.problem(failed, NcclWant())
    assert finding is not None
    assert "the frobnicator is out of gas on w-1" in finding.seen
    assert failed.errors[-1].rank is CauseRank.CONSEQUENCE
    ended = reader_nccl.read(
        f"{warning}\n# Collective test starting: a\n8 2 float sum -1 1 2 3 0 1 2 3 0\n# Collective test concluded: a\n"
    )
    assert ended.stated == ()
    assert ended.warnings == ("NCCL warned: the frobnicator is out of gas",)


def test_last_words_of_an_unknown_end_are_quoted() -> None:
    text = "# Collective test starting: all_reduce_perf\nbash: line 1: all_reduce_perf: command not found\n"
    finding = gate_nccl.problem(reader_nccl.read(text), NcclWant())
    assert finding is not None
    assert "its last words: bash: line 1: all_reduce_perf: command not found" in finding.seen


@pytest.mark.parametrize("read", [reader_nccl_errors.read, reader_mpi.errors, reader_slurm_errors.read])
def test_what_is_read_is_one_bounded_line_without_half_words(read: Any) -> None:
    secret = "s3cret" * 40
    text = (
        "\n".join(f"{line.format(host='w-1')} {'x ' * 120}{secret}\x1b[2J\x07" for line in (*CAUSES.values(), *CONSEQUENCES))
        + f"\nsrun: error: gpu1: task 0: {'y ' * 150}{secret}\nssh: connect to host a port 22: {secret * 3}"
    )
    errors = read(text)
    assert errors
    assert len(errors) <= reader_errors.MOST
    for error in errors:
        for value in (error.cause, error.line, error.host, error.device, error.peer):
            assert value.isprintable()
            assert len(value) <= reader_errors.LINE + 40
            assert "s3cret" not in value or secret in value


def test_flood_of_one_error_hides_no_cause() -> None:
    flood = "\n".join(CONSEQUENCES[1].format(host=f"w-{number}") for number in range(5000))
    first = reader_nccl_errors.read(f"{flood}\n{CAUSES['port'].format(host='w-3')}\n{flood}")[0]
    assert (first.rank, first.host) == (CauseRank.DEVICE, "w-3")
