"""Judges the speed of each GPU by itself: a matrix multiplication and nvbandwidth, against floors and against the fleet.

Floors are those of the product or the site. Where there is none, and beside it, the median of the run's own GPUs decides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from steps.contract.measurements import Measurement
from steps.contract.node_tests.node_health import NodeSpeed, SpeedWant
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.stages.shared.finding import Finding, fail
from steps.stages.validation import fleet_baseline

Figures = tuple[float | None, ...]
OUTLIER_SHARE = 0.1
"""A GPU is an outlier only if it is so far below the median: healthy GPUs of one product differ by 5 % and more
(https://github.com/stas00/ml-engineering, compute/accelerator).
"""
SPREAD = 0.1
"""Largest accepted difference between the samples of one GPU, as a share of the fastest."""


class Quantity(NamedTuple):
    """A figure of each GPU: words for it, unit, program, how to take it from a report, its floor, and who is to look at it."""

    name: str
    unit: str
    program: str
    figures: Callable[[NodeSpeed], Figures]
    floor: Callable[[SpeedWant], float | None]
    next_step: str


PEERS = "GPU to GPU"
QUANTITIES = (
    Quantity(
        "GEMM",
        "TFLOPS",
        "dcgmproftester",
        lambda speed: tuple(figures.median if figures else None for figures in speed.gemm),
        lambda want: want.gemm,
        "compare clocks, power and temperature of this GPU with the others (nvidia-smi dmon); run dcgmi diag -r 3 on the node",
    ),
    Quantity(
        "host to GPU",
        "GB/s",
        "nvbandwidth",
        lambda speed: speed.to_gpu,
        lambda want: want.host,
        "check the PCIe link of this GPU (nvidia-smi -q, lspci -vv) and the NUMA settings of the BIOS",
    ),
    Quantity(
        "GPU to host",
        "GB/s",
        "nvbandwidth",
        lambda speed: speed.to_host,
        lambda want: want.host,
        "check the PCIe link of this GPU (nvidia-smi -q, lspci -vv) and the NUMA settings of the BIOS",
    ),
    Quantity(
        PEERS,
        "GB/s",
        "nvbandwidth",
        lambda speed: speed.peers.medians if speed.peers else (),
        lambda want: want.between,
        "check the NVLinks of this GPU (nvidia-smi nvlink -s and -e) and the fabric manager",
    ),
)


class SpeedVerdict(NamedTuple):
    """Findings by node, what was measured, notes about what did not run or could not be judged, and each node's least figures."""

    findings: dict[str, Finding]
    measured: tuple[Measurement, ...]
    notes: tuple[str, ...]
    summaries: dict[str, str]


class QuantityFigures(NamedTuple):
    """One quantity of a fleet: the figures of each node's GPUs, the least of each node, and by what they are judged."""

    quantity: Quantity
    values: dict[str, Figures]
    least: dict[str, float]
    floor: float | None
    baseline: fleet_baseline.Baseline | None

    @property
    def limit(self) -> float:
        """The least value that passes: the floor, or what the median of the run's GPUs lets expect."""
        return max(self.floor or 0.0, self.baseline.limit if self.baseline else 0.0)


def judge(fleet: Mapping[str, NodeSpeed], want: SpeedWant, gpus: Mapping[str, int], *, joined: bool) -> SpeedVerdict:
    """Judge the GPUs of all nodes that reported. `gpus` are the GPUs that each must have.

    A program that the image lacks is reported in a note, and proves nothing. One that failed, or left a GPU out, fails its node.
    With `joined` NVLink joins all GPUs of a node; else pairs may have no copies between them (no peer access over PCIe), which a
    note reports.
    """
    notes, taken = [*_absent(fleet)], [*_taken(fleet, want, gpus)]
    step = "read the log of the check pod"
    expected = "programs that measure every GPU"
    findings = {node: fail(FailureClass.RUNTIME, speed.problem, expected, step) for node, speed in fleet.items() if speed.problem}
    for measured in taken:
        findings = dict(_low(measured, gpus)) | findings
        notes += _unjudged(measured)
    findings = dict(_unsteady(fleet)) | dict(_pairs(fleet, want.between)) | findings
    dead = dict(_dead(fleet))
    if joined:
        findings = dead | findings
    elif dead:
        notes.append(f"not measured: {PEERS} between some GPUs of {count(len(dead), 'node')}, which have no peer access")
    return SpeedVerdict(findings, tuple(map(_measurement, taken)), tuple(notes), _summaries(taken))


def _taken(fleet: Mapping[str, NodeSpeed], want: SpeedWant, gpus: Mapping[str, int]) -> Iterator[QuantityFigures]:
    for quantity in QUANTITIES:
        values = {node: quantity.figures(speed) for node, speed in fleet.items() if quantity.program not in speed.absent}
        if quantity.name == PEERS:
            values = {node: row for node, row in values.items() if gpus.get(node, 0) > 1}
        whole = {node: _without_gaps(row) for node, row in values.items()}
        least = {node: min(row) for node, row in whole.items() if row}
        # few nodes still have many GPUs, and one bad GPU does not move their median
        figures = least.values() if len(least) >= fleet_baseline.FEWEST else [value for row in whole.values() for value in row]
        baseline = fleet_baseline.of_values(figures, OUTLIER_SHARE)
        if values:
            yield QuantityFigures(quantity, values, least, quantity.floor(want), baseline)


def _without_gaps(row: Figures) -> Sequence[float]:
    return cast("Sequence[float]", row) if None not in row else [value for value in row if value is not None]


def _absent(fleet: Mapping[str, NodeSpeed]) -> Iterator[str]:
    for program in dict.fromkeys(quantity.program for quantity in QUANTITIES):
        nodes = sum(program in speed.absent for speed in fleet.values())
        if nodes:
            yield f"not run: the image has no {program} ({count(nodes, 'node')})"


def _low(measured: QuantityFigures, gpus: Mapping[str, int]) -> Iterator[tuple[str, Finding]]:
    """Yield a finding for each node with a GPU that was not measured, or is below the floor or far below the others."""
    quantity, limit = measured.quantity, measured.limit
    for node, row in measured.values.items():
        wanted = gpus.get(node, 0)
        if len(row) != wanted or None in row:
            seen = f"{quantity.name}: {quantity.program} measured {count(len(_without_gaps(row)), 'GPU')}"
            step = "read the log of the check pod"
            yield node, fail(FailureClass.RUNTIME, seen, f"a figure of {count(wanted, 'GPU')}", step)
        elif measured.least[node] < limit:
            yield node, _slow(measured, row)


def _slow(measured: QuantityFigures, row: Figures) -> Finding:
    quantity, floor, baseline = measured.quantity, measured.floor, measured.baseline
    least, gpu = min((value, gpu) for gpu, value in enumerate(row) if value is not None)
    low = sum(value is not None and value < measured.limit for value in row)
    more = f", and {count(low - 1, 'more GPU')}" if low > 1 else ""
    expected = f"at least {measured.limit:.4g} {quantity.unit}"
    if baseline is not None and (floor is None or least >= floor):
        expected += f": the median of this run's GPUs is {baseline.median:g}"
    seen = f"{quantity.name} {least:g} {quantity.unit} on GPU {gpu}{more}"
    return fail(FailureClass.PERFORMANCE, seen, expected, quantity.next_step)


def _unjudged(measured: QuantityFigures) -> Iterator[str]:
    if measured.floor is None and measured.baseline is None and measured.least:
        least, quantity = min(measured.least.values()), measured.quantity
        yield f"{quantity.name} {least:g} {quantity.unit} at least, not judged: no floor, and too few GPUs for a median"


def _unsteady(fleet: Mapping[str, NodeSpeed]) -> Iterator[tuple[str, Finding]]:
    for node, speed in fleet.items():
        for gpu, figures in enumerate(speed.gemm):
            if figures is not None and not (1 - SPREAD) * figures.most <= figures.least <= figures.most:
                seen = f"GEMM between {figures.least:g} and {figures.most:g} TFLOPS on GPU {gpu}"
                step = "look for throttling and for other load on this GPU (nvidia-smi dmon)"
                yield node, fail(FailureClass.PERFORMANCE, seen, f"samples within {SPREAD:.0%} of the fastest", step)


def _pairs(fleet: Mapping[str, NodeSpeed], floor: float | None) -> Iterator[tuple[str, Finding]]:
    for node, speed in fleet.items():
        peers = speed.peers
        if floor is not None and peers is not None and peers.least < floor:
            seen = f"{PEERS} {peers.least:g} GB/s between GPU {peers.first} and GPU {peers.second}"
            yield node, fail(FailureClass.PERFORMANCE, seen, f"at least {floor:g} GB/s", QUANTITIES[-1].next_step)


def _dead(fleet: Mapping[str, NodeSpeed]) -> Iterator[tuple[str, Finding]]:
    for node, speed in fleet.items():
        if speed.peers is not None and speed.peers.dead:
            first, second = speed.peers.dead[0]
            seen = f"{PEERS}: no copy between GPU {first} and GPU {second}"
            yield node, fail(FailureClass.HARDWARE, seen, "a figure of every pair of GPUs", QUANTITIES[-1].next_step)


def _measurement(measured: QuantityFigures) -> Measurement:
    """Return the figure of each node's slowest GPU, None if a GPU has none: reports of large fleets cannot hold every GPU's."""
    quantity, least = measured.quantity, measured.least
    return Measurement(
        quantity=f"{quantity.name}, slowest GPU",
        unit=quantity.unit,
        floor=measured.floor,
        values={node: (None if None in row else least.get(node),) for node, row in measured.values.items()},
        unjudged=not measured.limit,
    )


def _summaries(taken: Sequence[QuantityFigures]) -> dict[str, str]:
    """Return the least figures of each node in words."""
    texts: dict[str, str] = {}
    for measured in taken:
        name, unit = measured.quantity.name, measured.quantity.unit
        for node, value in measured.least.items():
            before = texts.get(node)
            texts[node] = f"{before}, {name} {value} {unit}" if before else f"{name} {value} {unit}"
    return texts
