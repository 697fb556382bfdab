"""Reads the report of the check `dcgm`: the outputs of several programs, each under a line `@@ NAME EXIT_CODE`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from msgspec import Struct

from steps.contract.node_tests.node_health import GemmFigures, GpuGroup, GpuState, GpuXid, NodeFacts, NodeSpeed, PeerCopies
from steps.readers import gpu_query, gpu_tables, kernel_log, nvbandwidth_matrix, tensor_load
from steps.readers.gpu_query import QueriedGpu
from steps.readers.kernel_log import KernelLog, SwitchEvent, XidEvent
from steps.readers.nvbandwidth_matrix import CopyBandwidth

NOT_THERE = 127
"""Exit code of a shell for a program that does not exist; the script writes it in place of a program that the image lacks."""
TO_GPU, TO_HOST, BETWEEN = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce"
MOST_XIDS = 8
_REPEATED = re.compile(r" \[repeated (?P<more>\d{1,9}) more times\]$")
"""The end of a line of the kernel log that the script keeps once for several of one kind."""
_MARK = re.compile(r"^@@ (?P<name>[a-z]{1,20}) (?P<code>\d{1,3})$", re.MULTILINE)


class ProgramOutput(Struct, frozen=True, kw_only=True):
    """The output of one program of a check, and its exit code."""

    code: int
    text: str


def programs(text: str) -> dict[str, ProgramOutput]:
    """Return the outputs in a report by the names of their marks; empty for a text without marks."""
    marks = list(_MARK.finditer(text))
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    return {
        mark["name"]: ProgramOutput(code=int(mark["code"]), text=text[mark.end() + 1 : end])
        for mark, end in zip(marks, ends, strict=True)
    }


def nccl_outputs(text: str) -> tuple[str, str]:
    """Return the outputs of nccl-tests in the report of the check `nccl-intra`: over all ways, and over the adapters alone."""
    mark = next((mark for mark in _MARK.finditer(text) if mark["name"] == "fabric"), None)
    return (text, "") if mark is None else (text[: mark.start()], text[mark.end() + 1 :])


# ---- host facts ----------------------------------------------------------------------------------------------------------------


def facts(outputs: Mapping[str, ProgramOutput]) -> NodeFacts | None:
    """Return the host facts in a report; None if `nvidia-smi -q` showed no GPU."""
    query = gpu_query.read(_text(outputs, "query"))
    if not query.gpus:
        return None
    links = gpu_tables.nvlinks(_text(outputs, "links")).speeds if "links" in outputs else None
    devices, kernel = [*_devices(_text(outputs, "adapters"))], outputs.get("kernel")
    log = None if kernel is None or kernel.code else kernel_log.read(kernel.text)
    groups: dict[GpuState, list[int]] = {}
    for index, gpu in enumerate(query.gpus):
        speeds = None if links is None else links.get(index, ())
        groups.setdefault(_state(gpu, speeds), []).append(index)
    return NodeFacts(
        attached=query.attached,
        driver=query.driver,
        bus_ids=tuple(gpu.bus_id for gpu in query.gpus),
        groups=tuple(GpuGroup(gpus=tuple(indexes), state=state) for state, indexes in groups.items()),
        xids=_xids(log),
        switches=_counted(log.switches)[:MOST_XIDS] if log else (),
        adapters=tuple(sorted(f"{board} {firmware}" for _, board, firmware, *_ in devices if "-" not in (board, firmware))),
        adapter_links={device: f"{lanes} lanes at {speed} GT/s" for device, _, _, lanes, speed in devices if lanes.strip("0-")},
        temperature=max((gpu.temperature for gpu in query.gpus if gpu.temperature is not None), default=None),
        clock=min((gpu.sm_clock_mhz for gpu in query.gpus if gpu.sm_clock_mhz is not None), default=None),
    )


def _text(outputs: Mapping[str, ProgramOutput], name: str) -> str:
    return outputs[name].text if name in outputs else ""


def _state(gpu: QueriedGpu, speeds: tuple[str, ...] | None) -> GpuState:
    reasons = any(path.startswith(("Clocks Event Reasons/", "Clocks Throttle Reasons/")) for path in gpu.fields)
    up = None if speeds is None else sum(speed.endswith("GB/s") for speed in speeds)
    return GpuState(
        product=gpu.product.replace(" ", "-"),
        vbios=gpu.vbios,
        mig={"Enabled": True, "Disabled": False, "N/A": False}.get(gpu.mig_mode),
        performance=gpu.fields.get("Performance State", ""),
        power_limit=gpu.power_limit,
        pcie_generation=gpu.pcie_gen,
        pcie_width=gpu.pcie_width,
        ecc={"Enabled": True, "Disabled": False}.get(gpu.ecc_mode),
        uncorrectable=gpu.ecc_volatile_uncorrectable,
        lifetime=gpu.ecc_aggregate_uncorrectable,
        remap_pending=gpu.remap_pending,
        remap_failure=gpu.remap_failure,
        throttle=gpu.throttle if reasons else None,
        links=up,
        links_down=None if speeds is None or up is None else len(speeds) - up,
        faults=gpu.faults[:MOST_FAULTS],
        lost=gpu.lost[:MOST_FAULTS],
    )


MOST_FAULTS = 4
"""Most fields that are kept of a GPU that reports faults."""


def _xids(log: KernelLog | None) -> tuple[GpuXid, ...] | None:
    """Return the Xids that point at hardware, each once; None if the kernel log could not be read."""
    if log is None:
        return None
    xids = _counted(event for event in log.xids if event.is_hardware)
    lost = (GpuXid(bus_id=bus) for bus in log.off_bus if all(bus not in xid.bus_id and xid.bus_id not in bus for xid in xids))
    return (*xids, *lost)[:MOST_XIDS]


def _counted(events: Iterable[XidEvent | SwitchEvent]) -> tuple[GpuXid, ...]:
    """Return the events of equal device and number as one each, with their times."""
    times: dict[tuple[str, int], GpuXid] = {}
    for event in events:
        key = (event.pci, event.number)
        before = times[key].times if key in times else 0
        repeated = _REPEATED.search(event.text)
        more, text = (int(repeated["more"]), event.text[: repeated.start()]) if repeated else (0, event.text)
        times[key] = GpuXid(bus_id=event.pci, number=event.number, text=text[:120], times=before + 1 + more)
    return tuple(times.values())


def _devices(text: str) -> Iterator[list[str]]:
    """Yield device, board, firmware, PCIe lanes and speed in GT/s of each RDMA device; a dash stands for what sysfs does not show.

    Virtual functions have no link of their own: sysfs shows 0 lanes or `Unknown`.
    """
    for line in text.splitlines()[:256]:
        words = line.split()
        if len(words) == 5:
            yield [*words[:3], words[3] if words[3].isdecimal() else "-", words[4]]


# ---- speed ---------------------------------------------------------------------------------------------------------------------


def speed(outputs: Mapping[str, ProgramOutput]) -> NodeSpeed | None:
    """Return the figures of the GPUs; None if the report has none of the programs that measure."""
    gemm, copies = outputs.get("gemm"), outputs.get("nvbandwidth")
    if gemm is None and copies is None:
        return None
    names = {"dcgmproftester": gemm, "nvbandwidth": copies}
    absent = tuple(name for name, output in names.items() if output is not None and output.code == NOT_THERE)
    samples = tensor_load.read(gemm.text) if gemm else {}
    matrices = nvbandwidth_matrix.read(copies.text) if copies else CopyBandwidth()
    return NodeSpeed(
        gemm=tuple(_gemm(samples.get(gpu, ())) for gpu in range(max(samples, default=-1) + 1)),
        to_gpu=_columns(matrices, TO_GPU),
        to_host=_columns(matrices, TO_HOST),
        peers=_peers(matrices),
        absent=absent,
        problem="; ".join(_problems(names, matrices)),
    )


def _gemm(samples: tuple[float, ...]) -> GemmFigures | None:
    """Return the figures of one GPU: the median counts, because the best sample hides a GPU that is slow at times."""
    if not samples:
        return None
    return GemmFigures(median=round(median(samples), 1), least=min(samples), most=max(samples))


def _peers(matrices: CopyBandwidth) -> PeerCopies | None:
    """Return the copies between GPUs; None without a value, and for a matrix of which a part is missing: its GPUs are uncertain."""
    matrix = matrices.cases.get(BETWEEN)
    if matrix is None or matrix.slowest is None or not matrix.is_square:
        return None
    least, first, second = matrix.slowest
    dead = matrix.dead_pairs[:MOST_DEAD]
    return PeerCopies(medians=matrix.by_column, least=least, first=first, second=second, dead=dead)


MOST_DEAD = 4
"""Most pairs of GPUs without a copy that are kept of a node."""


def _columns(matrices: CopyBandwidth, case: str) -> tuple[float | None, ...]:
    return matrices.cases[case].by_column if case in matrices.cases else ()


def _problems(names: Mapping[str, ProgramOutput | None], matrices: CopyBandwidth) -> Iterator[str]:
    for name, output in names.items():
        if output is not None and output.code not in (0, NOT_THERE):
            words = matrices.error if name == "nvbandwidth" and matrices.error else _last_line(output.text)
            yield f"{name} ended with exit code {output.code}{f': {words}' if words else ''}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160] if lines else ""
