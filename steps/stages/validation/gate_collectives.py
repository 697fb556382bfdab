"""Judges the programs that follow all_reduce over all nodes: all_gather, alltoall, the scaling curve, and the OSU tests.

The network is judged before any number, for each program: alltoall opens other connections than a ring does. A collective without a
published floor is held against the run's own all_reduce, so that a fabric that is slow for it alone shows.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from steps.contract.measurements import Measurement
from steps.contract.node_tests.nccl import NcclLog, NcclWant
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Status, by_cause
from steps.readers.osu_table import OsuTable
from steps.stages.shared.finding import Finding, fail
from steps.stages.validation import gate_nccl
from steps.stages.validation.contract import (
    CollectiveWant,
    FabricProgram,
    FunctionalExpectation,
    FunctionalObservation,
    ScalingWant,
)

POINT = "all_reduce"
"""Name of the program whose runs are points of the scaling curve."""
TOTAL_LOSS, FLAT_FROM = 0.3, 4
"""Largest loss of bandwidth from the best point to all nodes, as a share, and the nodes from which on a good fabric is flat: a
fabric that loses a little with every doubling loses most of its bandwidth at scale.
"""
_SCALE_STEP = (
    "look for congestion between switches: routing engine, adaptive routing, oversubscription, trunks that are down, SHARP; "
    "the localisation names the part if one is at fault"
)
_OSU_TESTS = {"osu_latency": "Latency", "osu_bw": "Bandwidth", "osu_allreduce": "Allreduce"}
"""Program → a word of its table's title."""


def problem(seen: FunctionalObservation, want: FunctionalExpectation) -> Finding | None:
    """Return the first problem of the programs after all_reduce; None if each ran, is right, and is fast enough."""
    for finding in _problems(seen, want):
        if finding is not None:
            return finding
    return None


def _problems(seen: FunctionalObservation, want: FunctionalExpectation) -> Iterator[Finding | None]:
    programs = {(program.name, len(want.nodes) if program.absent else program.nodes): program for program in seen.programs}
    # the floor is that of all nodes: points are held against each other
    single = msgspec.structs.replace(want.want, runs=1, floor=None)
    for nodes in points(want):
        yield _named(POINT, nodes, _ran(programs.get((POINT, nodes)), nodes, want, single))
    yield scaling(seen, want)
    for name, limit in want.collectives.items():
        yield _collective(name, programs.get((name, len(want.nodes))), limit, seen, want)
    for name in want.osu:
        yield _osu(next((program for program in seen.programs if program.name == name), None), name)


def points(want: FunctionalExpectation) -> tuple[int, ...]:
    """Return the numbers of nodes at which the scaling curve is measured beside that of all nodes: 2, 4, 8 …"""
    if want.scaling is None:
        return ()
    return tuple(2**power for power in range(1, len(want.nodes).bit_length() + 1) if 2**power < len(want.nodes))


def _named(name: str, nodes: int, finding: Finding | None) -> Finding | None:
    return finding and msgspec.structs.replace(finding, seen=f"{name} on {count(nodes, 'node')}: {finding.seen}")


def _ran(program: FabricProgram | None, nodes: int, want: FunctionalExpectation, limits: NcclWant) -> Finding | None:
    """Return the problem of a program of nccl-tests on a number of nodes: that it did not run, or one of its log."""
    if program is None:
        step = "read the end of the launcher's log: it ended before this program"
        return fail(FailureClass.RUNTIME, "it did not run", "a run of this program", step)
    if program.absent:
        step = "use an image with all programs of nccl-tests (validation.image)"
        return fail(FailureClass.INPUT, f"not run: the image has no {program.name}_perf", "the program in the image", step)
    log = program.log or NcclLog()
    first = next(iter(by_cause((*log.stated, *program.errors))), None)
    if first is not None and first not in log.stated and not any(run.ended for run in log.runs):
        return gate_nccl.stated(first)
    ranks = nodes * want.gpus
    finding = gate_nccl.network(log.transport, limits) if log.runs else None
    if finding is None and log.runs and program.hosts != nodes:
        step = "check mpirun's host file: fewer hosts measure NVLink instead of the fabric"
        finding = fail(FailureClass.RUNTIME, f"ranks on {count(program.hosts, 'host')}", f"{nodes} distinct hosts", step)
    return finding or gate_nccl.judged(program.exits, log, msgspec.structs.replace(limits, ranks=ranks, hosts=0))


# ---- collectives over all nodes ----------------------------------------------------------------------------------------------


def _collective(
    name: str, program: FabricProgram | None, limit: CollectiveWant, seen: FunctionalObservation, want: FunctionalExpectation
) -> Finding | None:
    expected, floor = _expected(name, seen, want), _floor(name, limit, seen, want)
    limits = msgspec.structs.replace(want.want, floor=round(floor, 2) or None)
    finding = _ran(program, len(want.nodes), want, limits)
    if finding is None:
        return None
    if finding.failure_class is FailureClass.PERFORMANCE and floor > limit.floor:
        words = f"at least {floor:.4g} GB/s, {limit.share:g} of the {expected:.4g} that this run's all_reduce lets expect"
        finding = msgspec.structs.replace(finding, expected=words)
    return _named(name, len(want.nodes), finding)


def _floor(name: str, limit: CollectiveWant, seen: FunctionalObservation, want: FunctionalExpectation) -> float:
    """Return the floor of a collective in GB/s: its own, or the share of what the run's all_reduce lets expect; 0 for none."""
    return max(limit.floor, limit.share * _expected(name, seen, want))


def _expected(name: str, seen: FunctionalObservation, want: FunctionalExpectation) -> float:
    """Return the bus bandwidth in GB/s that the run's own all_reduce lets expect of a collective; 0 if it was not measured.

    Rings of all_gather carry what those of all_reduce do. In alltoall each GPU sends all but its own node's part through its share
    of the node's ports, and bus bandwidth counts the part for other ranks of its own node, too.
    """
    base = statistics.median(gate_nccl.bandwidths(seen.log.runs) or [0.0]) if seen.log else 0.0
    ranks = len(want.nodes) * want.gpus
    if name != "alltoall":
        return base
    return base / want.gpus * (ranks - 1) / (ranks - want.gpus) if want.gpus and ranks > want.gpus else 0.0


# ---- scaling -----------------------------------------------------------------------------------------------------------------


def curve(seen: FunctionalObservation, nodes: int) -> dict[int, float]:
    """Return number of nodes → bus bandwidth of all_reduce at the largest size in GB/s, slowest run; all nodes are `nodes`."""
    measured = {program.nodes: program.log for program in seen.programs if program.name == POINT}
    logs: Mapping[int, NcclLog | None] = measured | {nodes: seen.log}
    speeds = {size: gate_nccl.bandwidths(log.runs) for size, log in logs.items() if log is not None}
    return {size: min(row) for size, row in sorted(speeds.items()) if row}


def scaling(seen: FunctionalObservation, want: FunctionalExpectation) -> Finding | None:
    """Return a finding if bandwidth falls too far from a number of nodes to the next one, or from the best point to all nodes."""
    if want.scaling is None:
        return None
    rows = list(curve(seen, len(want.nodes)).items())
    for (fewer, before), (more, after) in pairwise(rows):
        if after < before * (1 - _loss(want.scaling, fewer)):
            fell = f"all_reduce falls from {before:g} GB/s on {fewer} nodes to {after:g} on {more}: only at >= {more} nodes"
            expected = f"a loss of at most {_loss(want.scaling, fewer):.0%}"
            return fail(FailureClass.PERFORMANCE, fell, expected, _SCALE_STEP)
    return _total_loss([row for row in rows if row[0] >= FLAT_FROM])


def _total_loss(rows: Sequence[tuple[int, float]]) -> Finding | None:
    best, last = max(rows, key=lambda row: row[1], default=(0, 0.0)), rows[-1] if rows else (0, 0.0)
    if last[1] >= best[1] * (1 - TOTAL_LOSS):
        return None
    fell = f"all_reduce falls step by step from {best[1]:g} GB/s on {best[0]} nodes to {last[1]:g} on {last[0]}"
    return fail(FailureClass.PERFORMANCE, fell, f"a loss of at most {TOTAL_LOSS:.0%} in all", _SCALE_STEP)


def _loss(want: ScalingWant, nodes: int) -> float:
    return want.first_loss if nodes < FLAT_FROM else want.loss


def with_curve(finding: Finding, seen: FunctionalObservation, want: FunctionalExpectation) -> Finding:
    """Return the finding of all_reduce over all nodes with what fewer nodes reached, if it is one about bandwidth.

    If fewer nodes are fast, the finding is that bandwidth falls with their number.
    """
    if finding.failure_class is not FailureClass.PERFORMANCE or want.scaling is None:
        return finding
    fell = scaling(seen, want)
    if fell is not None:
        floor = want.want.floor
        expected = f"{fell.expected}, and {floor:g} GB/s on {len(want.nodes)} nodes" if floor else fell.expected
        return msgspec.structs.replace(fell, expected=expected)
    rows = curve(seen, len(want.nodes))
    fewer = ", ".join(f"{nodes}: {speed:g}" for nodes, speed in rows.items() if nodes < len(want.nodes))
    return msgspec.structs.replace(finding, seen=f"{finding.seen}; on fewer nodes {fewer} GB/s") if fewer else finding


# ---- OSU ---------------------------------------------------------------------------------------------------------------------


def _osu(program: FabricProgram | None, name: str) -> Finding | None:
    """Return the problem of an OSU test that ran; None if the image lacks it, because it counts only where the image has it."""
    if program is not None and program.absent:
        return None
    if program is None:
        step = "read the end of the launcher's log: it ended before this program"
        return fail(FailureClass.RUNTIME, f"{name} did not run", "a run of this program, or a word that the image lacks it", step)
    table = program.tables[-1] if program.tables else None
    finding = _table(table, _OSU_TESTS.get(name, ""))
    if finding is None and program.nodes < 2:
        finding = fail(FailureClass.RUNTIME, "it ran on one node", "two nodes or more", "check mpirun's host file")
    code = next((code for code in program.exits if code), 0 if program.exits else None)
    if code != 0:
        cause = next(iter(by_cause(program.errors)), None)
        ended = "a run hung until its time-out" if code == 124 else f"it ended with exit code {'unknown' if code is None else code}"
        words = f"{cause.cause}; {ended}" if cause else ended
        finding = fail(FailureClass.RUNTIME, words, "exit code 0", "read the end of the launcher's log")
    return finding and msgspec.structs.replace(finding, seen=f"{name}: {finding.seen}", status=Status.FAIL)


def _table(table: OsuTable | None, title: str) -> Finding | None:
    step = "read the end of the launcher's log"
    if table is None or table.largest is None or title not in table.test:
        return fail(FailureClass.RUNTIME, "no table", "a table with a row per size", step)
    if any(row.value <= 0 for row in table.rows):
        return fail(FailureClass.RUNTIME, "a row without a figure", "a figure at every size", step)
    if any(row.validation == "Fail" for row in table.rows):
        return fail(
            FailureClass.RUNTIME, "wrong data", "Pass at every size", "test the nodes in halves to find the one that corrupts data"
        )
    if not table.unit:
        return fail(FailureClass.RUNTIME, "a table without a unit", "a column in us or MB/s", step)
    if not table.full_size or not table.is_whole:
        return fail(
            FailureClass.RUNTIME, f"the table ends at {table.largest.size} bytes", f"rows up to {table.full_size} bytes", step
        )
    return None


# ---- for the report ----------------------------------------------------------------------------------------------------------


def measurements(seen: FunctionalObservation, want: FunctionalExpectation) -> Iterator[Measurement]:
    """Yield what the programs measured: each collective, and latency or bandwidth of each OSU test."""
    for program in seen.programs:
        limit = want.collectives.get(program.name)
        if limit is not None and program.log is not None:
            yield Measurement(
                quantity=f"NCCL {program.name} over all nodes, slowest run",
                unit="GB/s",
                floor=round(_floor(program.name, limit, seen, want), 2) or None,
                together=min(gate_nccl.bandwidths(program.log.runs), default=None),
            )
        for table in program.tables:
            if table.largest is not None and program.name in want.osu:
                yield _osu_measurement(program, table)


def _osu_measurement(program: FabricProgram, table: OsuTable) -> Measurement:
    shown = min(table.rows, key=lambda row: row.size) if table.unit == "us" else table.largest or table.rows[0]
    unit = "µs" if table.unit == "us" else table.unit
    where = f"{count(program.nodes, 'pod')} over {program.over}"
    name = program.name.removeprefix("osu_").replace("bw", "bandwidth")
    return Measurement(quantity=f"OSU {name} at {shown.size} bytes, {where}", unit=unit, together=shown.value)


def notes(seen: FunctionalObservation, want: FunctionalExpectation) -> list[str]:
    """Return which programs did not run or not over the fabric, as the image lacks a part, and the points of the scaling curve."""
    lacking = [
        f"not run: the image has no {program.name}" for program in seen.programs if program.absent and program.name in want.osu
    ]
    if want.want.rdma:
        lacking += [
            f"{program.name} ran over {program.over.upper() or 'an unknown network'}: it says nothing of the fabric"
            for program in seen.programs
            if program.name in want.osu and not program.absent and program.over != "ucx"
        ]
    rows = curve(seen, len(want.nodes)) if want.scaling is not None else {}
    shown = ", ".join(f"{nodes}: {speed:g}" for nodes, speed in rows.items())
    return [*lacking, *([f"all_reduce by number of nodes: {shown} GB/s"] if len(rows) > 1 else [])]


def summary(seen: FunctionalObservation, want: FunctionalExpectation) -> str:
    """Return the least bandwidth of each collective in words; empty if none was wanted."""
    rows = {program.name: gate_nccl.bandwidths(program.log.runs) for program in seen.programs if program.log is not None}
    shown: Sequence[str] = [f"{name} {min(rows[name]):g} GB/s" for name in want.collectives if rows.get(name)]
    return f"; {', '.join(shown)}" if shown else ""
