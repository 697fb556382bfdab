"""Stage validation: the simulated GPUs and adapters of a node, and what tools print of them under load.

All tools show the same parts: a narrow PCIe link is in nvidia-smi and slows nvbandwidth, a hot GPU is in nvidia-smi too and slows
its GEMM. Formats: `man nvidia-smi`, https://github.com/NVIDIA/DCGM dcgmproftester/PhysicalGpu.cpp,
https://github.com/NVIDIA/nvbandwidth README.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from msgspec import Struct

from workflows.rehearsal.simulator.api.api_kinds import NODES, labels_of
from workflows.rehearsal.simulator.machines.simulated_fleet import HardwareProfile
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator_nodes import DRIVER, OLDER_VBIOS
from workflows.rehearsal.simulator.stages.validation import fabric_links
from workflows.rehearsal.simulator.world import World


class GpuModel(Struct, frozen=True):
    """Figures of a GPU product: PCIe generation, NVLinks and GB/s of each, GEMM TFLOPS, GB/s to the host and to a GPU, watts."""

    pcie: int
    links: int
    link_speed: str
    tflops: float
    host: float
    peer: float
    watts: int


_HOPPER = GpuModel(5, 18, "26.562", 640.0, 53.0, 377.0, 700)
MODELS = {
    "ampere": GpuModel(4, 12, "25", 240.0, 25.2, 272.0, 400),
    "hopper": _HOPPER,
    "blackwell": GpuModel(5, 18, "53.125", 1400.0, 55.0, 760.0, 1000),
    "ada-lovelace": GpuModel(4, 0, "", 170.0, 25.0, 22.0, 350),
}
"""Family of a product → its figures: copies as published (Azure/AI-benchmarking-guide), GEMM of no published source."""
CLOCK, HOT_CLOCK, TEMPERATURE, HOT = 1755, 1065, 61, 92
"""SM clock in MHz and °C under load, of a GPU that is well and of one that is too hot."""
NARROW, PENDING, THROTTLING, WEAK, FAULTY = 3, 5, 2, 6, 5
"""GPU of a victim that a fault hits: narrow PCIe link, pending rows, too hot, weak, with memory errors."""
WEAK_SHARE = 0.74
CAPPED, CAPPED_SPEED = 0.9, 0.96
"""Share of its power that a capped GPU may draw, and the share of its speed that is left."""
WHOLE = "all-disabled"
"""Value of the label `nvidia.com/mig.config` of a node whose GPUs are whole."""


class SimulatedGpu(Struct, frozen=True, kw_only=True):
    """A GPU of a machine: its parts as the faults in force leave them."""

    index: int
    vbios: str
    lanes: int = 16
    pending: bool = False
    remap_failed: bool = False
    uncorrectable: int = 0
    is_hot: bool = False
    links: int = 0
    links_down: int = 0
    has_mig: bool = False
    speed: float = 1.0
    is_capped: bool = False

    @property
    def bus(self) -> str:
        """The PCI bus number in hexadecimal."""
        return f"{27 + 16 * self.index:02X}"

    @property
    def tensor_share(self) -> float:
        """The share of its product's GEMM that is left: clocks of a hot GPU are lower."""
        return self.speed * (HOT_CLOCK / CLOCK if self.is_hot else 1.0)


def model(hardware: HardwareProfile) -> GpuModel:
    """Return the figures of a machine's GPU product."""
    return MODELS.get(hardware.family, _HOPPER)


def gpus(world: World, node: str) -> list[SimulatedGpu]:
    """Return the GPUs of a machine in the order of their PCI addresses."""
    hardware = world.hardware(node)
    links = model(hardware).links if hardware.nvswitches else 0
    down = links // 2 if world.fault("nvlink_degraded", node) else 0

    def hit(fault: str, index: int, victim: int) -> bool:
        return index == min(victim, count - 1) and world.fault(fault, node) is not None

    count, is_capped = world.host(node).gpus, world.fault("gpu_power_capped", node) is not None
    node_object = world.find(NODES, node)
    has_mig = node_object is not None and labels_of(node_object).get("nvidia.com/mig.config", WHOLE) != WHOLE
    return [
        SimulatedGpu(
            index=index,
            vbios=OLDER_VBIOS if hit("gpu_board_exchanged", index, index) else hardware.vbios,
            lanes=8 if hit("gpu_pcie_narrow", index, NARROW) else 16,
            pending=hit("gpu_rows_pending", index, PENDING),
            remap_failed=hit("dcgm_memory_fault", index, FAULTY),
            uncorrectable=int(hit("dcgm_memory_fault", index, FAULTY)),
            is_hot=hit("gpu_throttles", index, THROTTLING),
            links=links - down,
            links_down=down,
            has_mig=has_mig,
            speed=WEAK_SHARE if hit("gpu_weak", index, WEAK) else CAPPED_SPEED if is_capped else 1.0,
            is_capped=is_capped,
        )
        for index in range(count)
    ]


def query(world: World, node: str, own: Sequence[SimulatedGpu]) -> Iterator[str]:
    """Yield what `nvidia-smi -q` prints under load, shortened as `dcgm.sh` does it."""
    hardware = world.hardware(node)
    driver = world.node_annotations(node).get(DRIVER) or hardware.driver
    yield f"{'Driver Version':<42}: {driver}"
    yield f"{'CUDA Version':<42}: {hardware.cuda}"
    yield f"{'Attached GPUs':<42}: {len(own)}"
    for gpu in own:
        yield from _section(hardware, gpu, round(4 * world.chance(f"validation/temperature/{node}/{gpu.index}")))


@functools.lru_cache(maxsize=4096)
def _section(hardware: HardwareProfile, gpu: SimulatedGpu, warmer: int) -> tuple[str, ...]:
    """Return the section of one GPU. GPUs of a large fleet are in few states, and their pods' programs are asked several times."""
    return tuple(_section_lines(hardware, gpu, warmer))


def _section_lines(hardware: HardwareProfile, gpu: SimulatedGpu, warmer: int) -> Iterator[str]:
    def row(depth: int, name: str, value: object = None) -> str:
        head = f"{' ' * 4 * depth}{name}"
        return head if value is None else f"{head:<42}: {value}"

    active = {True: "Active", False: "Not Active"}
    link = model(hardware).pcie
    yield f"GPU 00000000:{gpu.bus}:00.0"
    yield row(1, "Product Name", hardware.product.replace("-", " "))
    yield row(1, "MIG Mode")
    yield row(2, "Current", "Enabled" if gpu.has_mig else "Disabled")
    yield row(1, "VBIOS Version", gpu.vbios)
    yield from (row(1, "GPU Reset Status"), row(2, "Reset Required", "Requested functionality has been deprecated"))
    yield row(1, "GPU Recovery Action", "Reset" if gpu.remap_failed else "None")
    yield from (row(1, "PCI"), row(2, "GPU Link Info"), row(3, "PCIe Generation"))
    yield from (row(4, "Max", link), row(4, "Current", link), row(3, "Link Width"))
    yield from (row(4, "Max", "16x"), row(4, "Current", f"{gpu.lanes}x"))
    yield row(1, "Performance State", "P0")
    yield row(1, "Clocks Event Reasons")
    yield row(2, "SW Power Cap", active[not gpu.is_hot])
    yield row(2, "HW Slowdown", active[gpu.is_hot])
    yield row(3, "HW Thermal Slowdown", active[gpu.is_hot])
    yield row(3, "HW Power Brake Slowdown", active[False])
    yield row(2, "SW Thermal Slowdown", active[False])
    yield row(1, "ECC Mode")
    yield row(2, "Current", "Enabled")
    yield row(1, "ECC Errors")
    for section in ("Volatile", "Aggregate"):
        yield row(2, section)
        yield row(3, "SRAM Uncorrectable Parity", 0)
        yield row(3, "DRAM Uncorrectable", gpu.uncorrectable)
    yield row(1, "Remapped Rows")
    yield row(2, "Correctable Error", 0)
    yield row(2, "Uncorrectable Error", int(gpu.pending or gpu.remap_failed))
    yield row(2, "Pending", "Yes" if gpu.pending else "No")
    yield row(2, "Remapping Failure Occurred", "Yes" if gpu.remap_failed else "No")
    yield from (row(1, "Temperature"), row(2, "GPU Current Temp", f"{(HOT if gpu.is_hot else TEMPERATURE) + warmer} C"))
    limit = model(hardware).watts * (CAPPED if gpu.is_capped else 1.0)
    yield from (row(1, "GPU Power Readings"), row(2, "Current Power Limit", f"{limit:.2f} W"))
    state, status = ("Completed", "Success") if gpu.links else ("N/A", "N/A")
    yield from (row(1, "Fabric"), row(2, "State", state), row(2, "Status", status))
    yield from (row(1, "Clocks"), row(2, "SM", f"{HOT_CLOCK if gpu.is_hot else CLOCK} MHz"))
    yield row(1, "Processes", "None")


def kernel_log(world: World, node: str, own: Sequence[SimulatedGpu]) -> Iterator[str]:
    """Yield the lines of NVIDIA's driver in the kernel log, as `dcgm.sh` keeps them.

    They are its start, an Xid of each GPU that remapped a row or could not, and a fatal event of an NVSwitch.
    """
    hardware = world.hardware(node)
    yield f"[   21.402118] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {hardware.driver}"
    for gpu in own:
        at = f"[86401.{gpu.index:06d}] NVRM: Xid (PCI:0000:{gpu.bus.lower()}:00)"
        if gpu.pending:
            yield f"{at}: 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate."
        if gpu.remap_failed:
            yield f"{at}: 64, pid='<unknown>', name=<unknown>, Row Remapper: Failed to record remapping"
    if hardware.nvswitches and world.fault("nvswitch_fatal_error", node):
        yield "[86402.118204] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 30 sourcetrack timeout error (First)"


def links(hardware: HardwareProfile, own: Sequence[SimulatedGpu]) -> Iterator[str]:
    """Yield what `nvidia-smi nvlink --status` prints, with the same text in place of every UUID."""
    speed = model(hardware).link_speed
    for gpu in own:
        if gpu.links or gpu.links_down:
            yield f"GPU {gpu.index}: {hardware.product.replace('-', ' ')} (UUID: GPU-x)"
        for number in range(gpu.links + gpu.links_down):
            yield f"\t Link {number}: {f'{speed} GB/s' if number < gpu.links else '<inactive>'}"


def adapters(world: World, node: str) -> Iterator[str]:
    """Yield device, board, firmware and PCIe link of each RDMA device, as `dcgm.sh` reads them in /sys/class/infiniband."""
    hardware = world.hardware(node)
    speed = {4: "16.0", 5: "32.0"}.get(model(hardware).pcie, "32.0")
    for number in range(hardware.nics):
        lanes = 4 if number == fabric_links.RAIL and world.fault("adapter_pcie_narrow", node) else 16
        yield f"mlx5_{number} {hardware.pci_nic} {hardware.nic_firmware} {lanes} {speed}"


def gemm(world: World, node: str, own: Sequence[SimulatedGpu]) -> Iterator[str]:
    """Yield the last lines of `dcgmproftester -t 1004` of each GPU."""
    full = model(world.hardware(node)).tflops
    for gpu in own:
        for sample in range(3):
            differs = 1 + 0.02 * (world.chance(f"validation/gemm/{node}/{gpu.index}/{sample}") - 0.5)
            gflops = f"{full * 1000 * gpu.tensor_share * differs:#.3g}"
            yield f"Worker {gpu.index}:0 [1004]: TensorEngineActive:  generated ???, dcgm  ({gflops} gflops)."


def copies(world: World, node: str, own: Sequence[SimulatedGpu]) -> Iterator[str]:
    """Yield what nvbandwidth prints of its three test cases: host to GPU, GPU to host, and between GPUs."""
    figures = model(world.hardware(node))
    heads = "".join(f"{gpu.index:10d}" for gpu in own)
    for name, arrow in (("host_to_device", "->"), ("device_to_host", "<-")):
        differs = 1 + 0.01 * (world.chance(f"validation/{name}/{node}") - 0.5)
        values = "".join(f"{figures.host * gpu.lanes / 16 * differs:10.2f}" for gpu in own)
        yield from (f"Running {name}_memcpy_ce.", f"memcpy CE CPU(row) {arrow} GPU(column) bandwidth (GB/s)")
        yield from (f"          {heads[1:]}", f" 0{values[1:]}")
    if len(own) < 2:
        return
    yield from ("Running device_to_device_memcpy_read_ce.", "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)")
    yield f"          {heads[1:]}"
    share = [gpu.links / max(gpu.links + gpu.links_down, 1) if gpu.links else 1.0 for gpu in own]
    for row in range(len(own)):
        cells = (f"{figures.peer * min(share[row], share[at]):10.2f}" if at != row else f"{'N/A':>10}" for at in range(len(own)))
        yield f"{row:2d}{''.join(cells)}"
