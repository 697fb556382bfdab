"""Judges workloads of level full: fio and STREAM on each node, and a training job of torchrun on two nodes.

A figure without a floor is measured and told, and is no reason to pass or to fail.
"""

import math
from collections.abc import Iterator, Sequence

from steps.contract.measurements import Measurement
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.validation.contract import (
    BenchmarkPod,
    BenchmarksExpectation,
    BenchmarksObservation,
    TrainingExpectation,
    TrainingObservation,
    TrainingPod,
)

ABSENT, TIMED_OUT = 127, 124
"""End codes: the image lacks the program; `timeout` ended it."""
MEMBERS = 2
"""Nodes of the training job."""
FIO_JOBS = {
    "seq_read": ("fio sequential read", "MB/s"),
    "seq_write": ("fio sequential write", "MB/s"),
    "rand_read": ("fio random read of 4 KiB", "operations/s"),
    "rand_write": ("fio random write of 4 KiB", "operations/s"),
}
"""Job of fio → what it measures, and the unit."""
_STORAGE_STEP = "compare this node's mount, network path and CSI driver with those of a fast node, and look for other load"
_MEMORY_STEP = "compare DIMM population, NUMA settings and CPU frequency with those of a fast node"


# ---- fio and STREAM ----------------------------------------------------------------------------------------------------------


def benchmark_problem(check: BenchmarkPod, want: BenchmarksExpectation) -> Finding | None:
    """Return the problem of one node's benchmarks; None if all that was asked for ran, and is fast enough."""
    return (_fio(check, want) if want.storage else None) or _stream(check, want)


def _fio(check: BenchmarkPod, want: BenchmarksExpectation) -> Finding | None:
    ended = _ended("fio", check.fio_code, check.error)
    if ended is not None:
        return ended
    values = fio_values(check)
    failed = next((job for job in check.fio.jobs if job.error), None) if check.fio else None
    if failed is not None:
        return fail(FailureClass.RUNTIME, f"fio's job {failed.name} failed with error {failed.error}", "0", "read the check's log")
    missing = [name for name in FIO_JOBS if not values.get(name)]
    if missing:
        return fail(FailureClass.RUNTIME, f"fio measured no {', '.join(missing)}", "a figure of each job", "read the check's log")
    for name, floor in want.floors.items():
        what, unit = FIO_JOBS.get(name, (name, ""))
        if values.get(name, 0.0) < floor:
            return fail(
                FailureClass.PERFORMANCE, f"{what} {values.get(name, 0.0):g} {unit}", f"at least {floor:g} {unit}", _STORAGE_STEP
            )
    return None


def _stream(check: BenchmarkPod, want: BenchmarksExpectation) -> Finding | None:
    # without storage STREAM is all that was asked for
    if want.storage and not want.stream and check.stream_code == ABSENT:
        return None
    ended = _ended("STREAM", check.stream_code, check.error)
    if ended is not None:
        return ended
    triad = check.stream.rates.get("Triad") if check.stream else None
    if check.stream is None or triad is None:
        return fail(FailureClass.RUNTIME, "STREAM printed no rate of Triad", "a rate in MB/s", "read the check's log")
    if check.stream.valid is not True:
        wrong = "STREAM's results are wrong" if check.stream.valid is False else "STREAM does not say that its results are right"
        return fail(FailureClass.HARDWARE, wrong, "Solution Validates", "look for memory errors on this node (edac, rasdaemon)")
    if want.stream and triad < want.stream:
        return fail(FailureClass.PERFORMANCE, f"STREAM Triad {triad:g} MB/s", f"at least {want.stream:g} MB/s", _MEMORY_STEP)
    return None


def _ended(program: str, code: int | None, error: str) -> Finding | None:
    """Return a finding unless a program ended with 0."""
    if code == 0:
        return None
    if code is None:
        return unknown(FailureClass.RUNTIME, f"no end code of {program}", "exit code 0", "read the check's log")
    if code == ABSENT:
        step = f"use an image with {program} (validation.benchmarks.image)"
        return fail(FailureClass.INPUT, f"not run: the image has no {program}", f"{program} in the image", step)
    how = "hung until its time-out" if code == TIMED_OUT else f"ended with exit code {code}"
    words = f"{program} {how}{f': {error}' if error else ''}"
    return fail(FailureClass.RUNTIME, words, "exit code 0", "read the check's log")


def fio_values(check: BenchmarkPod) -> dict[str, float]:
    """Return fio job → MB/s of a sequential one, operations per second of a random one."""
    values: dict[str, float] = {}
    for job in check.fio.jobs if check.fio else ():
        reads, random = job.name.endswith("read"), job.name.startswith("rand")
        pair = (job.read_iops, job.read_mb_s) if reads else (job.write_iops, job.write_mb_s)
        values[job.name] = pair[0] if random else pair[1]
    return values


def benchmark_summary(check: BenchmarkPod) -> str:
    """Return what one node's benchmarks measured, in words."""
    values = fio_values(check)
    shown = [f"{FIO_JOBS[name][0]} {values[name]:g} {FIO_JOBS[name][1]}" for name in FIO_JOBS if name in values]
    triad = check.stream.rates.get("Triad") if check.stream else None
    return ", ".join([*shown, *([f"STREAM Triad {triad:g} MB/s"] if triad is not None else [])])


def benchmark_measurements(seen: BenchmarksObservation, want: BenchmarksExpectation) -> Iterator[Measurement]:
    """Yield what each program measured on each node."""
    wanted = frozenset(want.nodes)
    pods = [check for check in seen.pods if check.pod.node in wanted]
    figures = {check.pod.node: fio_values(check) for check in pods}
    for name, (what, unit) in FIO_JOBS.items() if want.storage else ():
        values = {node: row[name] for node, row in figures.items() if name in row}
        yield _measured(what, unit, want.floors.get(name), values)
    rates = {check.pod.node: check.stream.rates["Triad"] for check in pods if check.stream and "Triad" in check.stream.rates}
    if rates or want.stream:
        yield _measured("STREAM Triad", "MB/s", want.stream or None, rates)


def _measured(what: str, unit: str, floor: float | None, values: dict[str, float]) -> Measurement:
    return Measurement(quantity=what, unit=unit, floor=floor, values={node: (value,) for node, value in values.items()})


def benchmark_notes(seen: BenchmarksObservation, want: BenchmarksExpectation) -> list[str]:
    """Return what was not run because the image lacks it, and which figures have no floor."""
    lacking = any(check.stream_code == ABSENT for check in seen.pods)
    bare = [FIO_JOBS[name][0] for name in FIO_JOBS if want.storage and name not in want.floors]
    notes = ["not run: the image has no stream_c"] if lacking and not want.stream else []
    return [*notes, *([f"measured without a floor, so it proves nothing: {', '.join(bare)}"] if bare else [])]


# ---- training ----------------------------------------------------------------------------------------------------------------


def training_problem(seen: TrainingObservation, want: TrainingExpectation) -> Finding | None:
    """Return the problem of the training job, whose pods have all ended; the network is judged before any number."""
    nodes = {check.pod.node for check in seen.pods if check.pod.node}
    if len(seen.pods) != MEMBERS or len(nodes) != MEMBERS or not nodes <= set(want.nodes):
        placed = f"{count(len(seen.pods), 'pod')} on {count(len(nodes), 'node')} under test"
        return fail(FailureClass.RUNTIME, placed, "2 pods on 2 distinct nodes", "check the pods' anti-affinity")
    return _torchrun(seen.pods) or (_channels(seen.pods) if want.rdma else None) or _result(seen.pods, want)


def _torchrun(pods: Sequence[TrainingPod]) -> Finding | None:
    for check in pods:
        if check.code == 0:
            continue
        where = f"on {check.pod.node}"
        if check.code == TIMED_OUT:
            step = (
                "see that the pods reach each other on port 29500 and by NCCL's sockets: NetworkPolicy, DNS of the Service, routes"
            )
            return fail(FailureClass.RUNTIME, f"torchrun hung until its time-out {where}", "exit code 0", step)
        if check.code is None:
            return unknown(FailureClass.RUNTIME, f"no end code of torchrun {where}", "exit code 0", "read the check's log")
        if check.code == ABSENT:
            step = "use an image with PyTorch (validation.training.image)"
            return fail(FailureClass.INPUT, "not run: the image has no torchrun", "torchrun in the image", step)
        step = "read the end of the check's log"
        return fail(FailureClass.RUNTIME, f"torchrun ended with exit code {check.code} {where}", "exit code 0", step)
    return None


def _channels(pods: Sequence[TrainingPod]) -> Finding | None:
    expected = "every channel between the nodes over GPUDirect RDMA"
    for check in pods:
        where = f"on {check.pod.node}"
        if check.socket_channels:
            step = "see that the pods get the RDMA resource, and that the image has rdma-core"
            words = f"{count(check.socket_channels, 'channel')} over sockets {where}"
            return fail(FailureClass.DEPENDENCY, words, expected, step)
        if not check.rdma_channels:
            step = "see that the image's NCCL writes NCCL_DEBUG_FILE"
            return unknown(FailureClass.DEPENDENCY, f"NCCL's log shows no channel between nodes {where}", expected, step)
        if check.gdr_channels < check.rdma_channels:
            words = f"{check.gdr_channels} of {check.rdma_channels} channels with GPUDirect RDMA {where}"
            step = "load nvidia-peermem or use the open kernel module with DMA-BUF; compare with NCCL over all nodes"
            return fail(FailureClass.DEPENDENCY, words, expected, step)
    return None


def _result(pods: Sequence[TrainingPod], want: TrainingExpectation) -> Finding | None:
    for check in pods:
        where = f"on {check.pod.node}"
        if check.ranks != MEMBERS * want.gpus:
            words = f"{count(check.ranks, 'rank')} {where}"
            return fail(FailureClass.RUNTIME, words, count(MEMBERS * want.gpus, "rank"), "see which GPUs the pods have")
        first, last = check.first_loss, check.last_loss
        if first is None or last is None or not math.isfinite(first) or not math.isfinite(last):
            return fail(FailureClass.RUNTIME, f"no finite loss {where}", "a loss that falls", "test GPUs with DCGM level 3")
        if last >= first:
            words = f"the loss does not fall: {first:.4g} to {last:.4g} {where}"
            step = "test GPUs with DCGM level 3, and all_reduce for wrong data"
            return fail(FailureClass.RUNTIME, words, "a loss that falls", step)
        if check.busbw <= 0 or check.busbw < want.floor:
            words = f"torch's all_reduce {check.busbw:g} GB/s {where}"
            step = "compare with NCCL over all nodes: the image's NCCL and its settings differ"
            return fail(FailureClass.PERFORMANCE, words, f"at least {want.floor:g} GB/s", step)
    return None


def training_waiting(seen: TrainingObservation) -> Finding | None:
    """Return the finding on a training job whose pods have not all reported; None if they have."""
    silent = next((check.pod for check in seen.pods if not check.pod.report), None)
    if silent is None and len(seen.pods) >= MEMBERS:
        return None
    return gate_checks.silent(silent, (), "the result of torchrun")


def training_summary(seen: TrainingObservation) -> str:
    """Return what the training job measured, in words."""
    check = min(seen.pods, key=lambda pod: pod.busbw)
    losses = f"loss {check.first_loss or 0:.3g} to {check.last_loss or 0:.3g}"
    return f"torch {check.torch}: {count(check.ranks, 'rank')} on 2 nodes, all_reduce {check.busbw:g} GB/s, {losses}".replace(
        "  ", " "
    )
