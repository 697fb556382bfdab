"""The launcher of the NCCL test over all nodes shortens its log: its awk program loses nothing that a reader reads.

The awk program is run as the script has it, over recorded logs and over logs of the simulated fabric. Costs 2 s of CPU.
"""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from steps.contract.node_tests.nccl import NcclLog, NcclRow
from steps.runtime import fabric_jobs
from steps.stages.validation import gate_collectives, reader_nccl, reader_nccl_programs
from steps.stages.validation.contract import FunctionalExpectation, FunctionalObservation
from tests.gates.case_files import FOLDER, read_case
from workflows.rehearsal.simulator.stages.validation import launcher_log
from workflows.rehearsal.simulator.stages.validation.validation_nccl_output import Communicator, debug_info, join_lines, table
from workflows.stages import manifest_objects

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples/nccl"
PROGRAM = manifest_objects.script("nccl_inter.sh").partition("collapse='")[2].partition("'\n")[0]
AWKS = ("mawk", "gawk")
KEPT_BY_KUBELET = 10 << 20


def shortened(text: str, awk: str = "awk", brief: int = 0) -> str:
    """Return what the awk program makes of a text."""
    command = [awk, "-v", f"brief={brief}", PROGRAM]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True, timeout=60).stdout


def communicator(nodes: int) -> Communicator:
    """Return a group of ranks on nodes with eight GPUs each."""
    hosts = tuple(f"nccl-all-reduce-worker-{number}" for number in range(nodes))
    return Communicator(hosts=hosts, gpus=8, busbw=386.0, product="NVIDIA-H200")


def fabric(nodes: int, *, network: str = "IB", gdr: bool = True) -> list[str]:
    """Return the unshortened output of one run on a simulated fabric with eight GPUs a node."""
    shape = communicator(nodes)
    adapters = [[f"mlx5_{number}:1/IB" for number in range(8)]] * nodes
    return [*debug_info(shape, adapters, network=network, gdr=gdr), *table(shape, "1G", "8G", 0.0)]


@pytest.mark.parametrize("path", sorted(DATA.glob("*.txt")), ids=lambda path: path.stem)
def test_recorded_logs_read_the_same(path: Path) -> None:
    text = path.read_text(errors="replace")
    assert reader_nccl.read(shortened(text)) == reader_nccl.read(text)


@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.parametrize(("network", "gdr"), [("IB", True), ("IB", False), ("Socket", False)])
def test_simulated_logs_read_the_same(awk: str, network: str, gdr: bool) -> None:
    lines = fabric(5, network=network, gdr=gdr)
    text = join_lines(lines)
    brief = shortened(text, awk)
    assert len(brief) < len(text) / 3
    assert counted(reader_nccl.read(brief)) == counted(reader_nccl.read(text))
    assert join_lines(launcher_log.shorten(lines)) == brief


def counted(log: NcclLog) -> NcclLog:
    """Return a log to compare, with its channels between nodes and its ranks checked for being there."""
    assert log.transport.channels + log.transport.socket_channels == 80
    assert log.runs[0].ranks == 40
    return log


def test_channel_of_one_rank_over_sockets_is_kept() -> None:
    lines = fabric(4)
    place = next(number for number, line in enumerate(lines) if "17[1] -> 25[1] [send] via NET/IB" in line)
    lines[place] = lines[place].replace("NET/IB/1/GDRDMA", "NET/Socket/0")
    transport = reader_nccl.read(shortened(join_lines(lines))).transport
    assert (transport.channels, transport.gdr_channels, transport.socket_channels) == (63, 63, 1)


@pytest.mark.parametrize("awk", AWKS)
def test_further_programs_are_shortened_to_what_does_not_grow_with_the_nodes(awk: str) -> None:
    """Each of ten thousand nodes may write 1 kB of all_reduce; what follows is written for the whole fleet."""
    lengths = []
    for nodes in (5, 50):
        lines = fabric(nodes)
        brief = shortened(join_lines(lines), awk, brief=1)
        assert join_lines(launcher_log.shorten_part(lines)) == brief
        section = f"first\n@@ bringup begin all_gather nodes {nodes} over nccl\n{brief}@@ bringup end 0\n@@ bringup absent osu_bw\n"
        launcher = reader_nccl_programs.read(section)
        program, lacking = launcher.programs
        assert (launcher.main, lacking.name, lacking.absent) == ("first\n", "osu_bw", True)
        assert (program.name, program.nodes, program.hosts, program.exits) == ("all_gather", nodes, nodes, (0,))
        assert program.log is not None
        assert (program.log.runs[0].world, program.log.transport.gdr_channels) == (nodes * 8, nodes * 16)
        lengths.append(len(brief))
    assert lengths[1] - lengths[0] < 200


@pytest.mark.parametrize(
    ("hosts", "network", "gdr", "adapters"), [(1, "IB", True, 8), (3, "IB", True, 8), (3, "IB", False, 2), (4, "Socket", False, 1)]
)
def test_lines_of_one_host_stand_for_those_of_all(hosts: int, network: str, gdr: bool, adapters: int) -> None:
    shape, names = communicator(hosts), [[f"mlx5_{number}:1/IB" for number in range(adapters)]] * hosts
    lines = [*table(shape, "1G", "8G", 0.0)]
    whole = [*debug_info(shape, names, network=network, gdr=gdr), *lines]
    first = debug_info(shape, names, network=network, gdr=gdr, hosts=1)
    assert [*launcher_log.shorten_part(lines, first, hosts)] == [*launcher_log.shorten_part(whole)]


def test_log_of_ten_thousand_nodes_fits_into_what_a_kubelet_keeps() -> None:
    hundred = len(shortened(join_lines(fabric(100)))) - len(shortened(join_lines(fabric(50))))
    later = len(shortened(join_lines(list(table_only(100))))) - len(shortened(join_lines(list(table_only(50)))))
    assert (hundred + 2 * later) * (10_000 // 50) < KEPT_BY_KUBELET


def test_whole_logs_of_ten_thousand_nodes_are_read() -> None:
    """A log without its first lines has fewer hosts than the run had, which is a failure of the fabric."""
    fifty, hundred = (len(shortened(join_lines(fabric(nodes))).splitlines()) for nodes in (50, 100))
    later, latest = (len(shortened(join_lines(table_only(nodes))).splitlines()) for nodes in (50, 100))
    assert (hundred - fifty + 2 * (latest - later)) * (10_000 // 50) < fabric_jobs.LOG_LINES


def table_only(nodes: int) -> list[str]:
    """Return the output of a later run, which has no lines of NCCL."""
    return [line for line in fabric(nodes) if "NCCL INFO" not in line]


def test_warnings_and_lines_of_other_programs_stay() -> None:
    text = (
        "w-0:1:2 [0] misc/socket.cc:1 NCCL WARN Connect to 10.0.0.1<5> failed\n"
        "w-1:1:2 [0] misc/socket.cc:1 NCCL WARN Connect to 10.0.0.1<5> failed\nno\nno\n"
    )
    assert shortened(text) == text


def launched() -> tuple[FunctionalObservation, FunctionalExpectation]:
    """Return observation and expectation of a run whose programs all pass, on four nodes."""
    case = read_case(FOLDER / "validation/functional_programs.json")
    return msgspec.convert(case["seen"], FunctionalObservation), msgspec.convert(case["want"], FunctionalExpectation)


@pytest.mark.parametrize(("over", "shown"), [("ucx", None), ("tcp", "TCP"), ("", "an unknown network")])
def test_osu_beside_the_fabric_is_told(over: str, shown: str | None) -> None:
    seen, want = launched()
    programs = [msgspec.structs.replace(row, over=over) if row.name == "osu_latency" else row for row in seen.programs]
    notes = gate_collectives.notes(msgspec.structs.replace(seen, programs=tuple(programs)), want)
    assert [note for note in notes if "osu" in note] == (
        [] if shown is None else [f"osu_latency ran over {shown}: it says nothing of the fabric"]
    )


@pytest.mark.parametrize(
    ("speeds", "falls"), [((100.0, 84.0, 70.0), False), ((100.0, 84.0, 69.0), True), ((84.0, 100.0, 90.0), False)]
)
def test_a_little_less_with_each_doubling_is_too_little_at_the_end(speeds: tuple[float, ...], falls: bool) -> None:
    seen, want = launched()
    point = next(row for row in seen.programs if row.name == gate_collectives.POINT)
    assert point.log is not None

    def log(speed: float) -> NcclLog:
        assert point.log is not None
        run = point.log.runs[0]
        return msgspec.structs.replace(point.log, runs=(msgspec.structs.replace(run, rows=(slower(run.rows[0], speed),)),))

    programs = tuple(
        msgspec.structs.replace(point, nodes=nodes, log=log(speed)) for nodes, speed in zip((4, 8), speeds, strict=False)
    )
    curve = msgspec.structs.replace(seen, programs=programs, log=log(speeds[-1]))
    finding = gate_collectives.scaling(curve, msgspec.structs.replace(want, nodes=tuple(map(str, range(16)))))
    assert (finding is not None) == falls
    assert finding is None or "from 100 GB/s on 4 nodes to 69 on 16" in finding.seen


def slower(row: NcclRow, speed: float) -> NcclRow:
    return msgspec.structs.replace(row, out_of_place=speed, in_place=None)
