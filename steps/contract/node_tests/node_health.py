"""Host facts of a GPU node and its speed by itself, as the check pod of each node reports them, before a gate judges them.

Equal GPUs of a node are written once, so that the record of a large fleet stays small. None is what a tool did not show.
"""

from msgspec import Struct


class GpuState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU under load as `nvidia-smi` shows it, without the figures that differ between equal GPUs.

    `performance` is its performance state (`P0` under load), `power_limit` in watts. `uncorrectable` counts ECC errors since the
    driver was loaded, `lifetime` those ever seen. `throttle` has the active clock event reasons. `links` and `links_down` count
    NVLinks. `faults` are fields in which the GPU says that something is wrong with it, such as `reset required: Yes`, and `lost`
    fields with an error in place of a value.
    """

    product: str = ""
    vbios: str = ""
    mig: bool | None = None
    performance: str = ""
    power_limit: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    ecc: bool | None = None
    uncorrectable: int | None = None
    lifetime: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    throttle: tuple[str, ...] | None = None
    links: int | None = None
    links_down: int | None = None
    faults: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


class GpuGroup(Struct, frozen=True, kw_only=True):
    """GPUs of a node in equal states, by their indexes."""

    gpus: tuple[int, ...]
    state: GpuState


class GpuXid(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An Xid of a GPU, or SXid of an NVSwitch, that points at hardware, and how often the kernel log has it.

    Number 0: the GPU fell off the bus.
    """

    bus_id: str
    number: int = 0
    text: str = ""
    times: int = 1


class NodeFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Host facts of a node.

    `attached` is the number of GPUs that the driver announces. `xids` is None where the kernel log cannot be read; `switches` are
    the fatal SXids of NVSwitches in it. `adapters` are `BOARD FIRMWARE` of the RDMA devices, and `adapter_links` the PCIe link of
    each, such as `16 lanes at 32.0 GT/s`; empty where the pod sees none. `temperature` (°C) is that of the hottest GPU, `clock`
    (MHz) that of the slowest SM.
    """

    attached: int | None = None
    driver: str = ""
    bus_ids: tuple[str, ...] = ()
    groups: tuple[GpuGroup, ...] = ()
    xids: tuple[GpuXid, ...] | None = None
    switches: tuple[GpuXid, ...] = ()
    adapters: tuple[str, ...] = ()
    adapter_links: dict[str, str] = {}
    temperature: float | None = None
    clock: float | None = None


class GemmFigures(Struct, frozen=True, kw_only=True):
    """TFLOPS of a matrix multiplication on one GPU: median, least and most of its samples."""

    median: float
    least: float
    most: float


class PeerCopies(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """GB/s between the GPUs of a node: the median of each GPU with the others, and the slowest pair by the indexes of its GPUs.

    `dead` has the first pairs without a figure, because no copy went between these GPUs.
    """

    medians: tuple[float | None, ...]
    least: float
    first: int
    second: int
    dead: tuple[tuple[int, int], ...] = ()


class NodeSpeed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures of a node's GPUs by index, None for a GPU without one; empty if the program did not run.

    `to_gpu` and `to_host` are GB/s of nvbandwidth. `absent` names programs that the image lacks, `problem` says why one failed.
    """

    gemm: tuple[GemmFigures | None, ...] = ()
    to_gpu: tuple[float | None, ...] = ()
    to_host: tuple[float | None, ...] = ()
    peers: PeerCopies | None = None
    absent: tuple[str, ...] = ()
    problem: str = ""


class HostWant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expected host facts: the label of the GPU product, and its PCIe generation, lanes and NVLinks (0: the product has none).

    With `adapters` the node has RDMA devices.
    """

    product: str
    pcie_generation: int
    pcie_width: int
    links: int = 0
    adapters: bool = False


class SpeedWant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expected speed of each GPU; without a floor (None) only the fleet itself decides.

    `gemm` is in TFLOPS, `host` (either way between host and GPU) and `between` (GPU to GPU) in GB/s.
    """

    gemm: float | None = None
    host: float | None = None
    between: float | None = None
