"""NCCL tests: what one log says of its runs and of the network they used, before anybody judges it (gpu_stack §8.1, §8.3)."""

from msgspec import Struct

from steps.contract.tool import ToolError


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message size. Bandwidths are bus bandwidths in GB/s; a side that was not printed is None.

    `wrong` counts wrong elements of both sides, `unchecked` the sides whose correctness was not checked (`N/A`).
    """

    size: int
    out_of_place: float | None = None
    in_place: float | None = None
    wrong_out_of_place: int = 0
    wrong_in_place: int = 0
    unchecked: int = 0
    checked: int = 0

    @property
    def wrong(self) -> int:
        """Wrong elements of both sides."""
        return self.wrong_out_of_place + self.wrong_in_place

    @property
    def least(self) -> float | None:
        """The lower of the sides that were printed."""
        sides = [side for side in (self.out_of_place, self.in_place) if side is not None]
        return min(sides, default=None)


class NcclRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of one of the nccl-tests.

    `started` and `concluded` are its own marks (releases before 2.17 print none); `out_of_bounds` is None where the summary is
    missing; `ranks` counts the device lines, `world` is the size of the communicator as far as they or NCCL tell it (0: unknown);
    `average` is in GB/s and says nothing about the largest size (gpu_stack §0.10); `sizes` is how many sizes the run announced
    before it began (0: unknown).
    """

    collective: str = ""
    version: str = ""
    started: bool = False
    concluded: bool = False
    rows: tuple[Row, ...] = ()
    sizes: int = 0
    out_of_bounds: int | None = None
    out_of_bounds_ok: bool | None = None
    average: float | None = None
    ranks: int = 0
    world: int = 0
    hosts: tuple[str, ...] = ()
    gpu: str = ""

    @property
    def ended(self) -> bool:
        """Whether it came to its own end: a release that announces its start must announce its end."""
        return self.concluded or (not self.started and self.out_of_bounds is not None)

    @property
    def largest(self) -> Row | None:
        """The row of the largest size; of repetitions the slowest one."""
        size = max((row.size for row in self.rows), default=0)
        found = [row for row in self.rows if row.size == size]
        return min(found, key=lambda row: -1.0 if row.least is None else row.least, default=None)

    @property
    def fastest(self) -> float | None:
        """The highest bus bandwidth of any size."""
        sides = [side for row in self.rows for side in (row.out_of_place, row.in_place) if side is not None]
        return max(sides, default=None)

    @property
    def wrong_sides(self) -> int:
        """How many sides of rows have wrong elements."""
        return sum((row.wrong_out_of_place > 0) + (row.wrong_in_place > 0) for row in self.rows)

    @property
    def unchecked_sides(self) -> int:
        """How many sides of rows say that correctness was not checked."""
        return sum(row.unchecked for row in self.rows)

    @property
    def checked(self) -> bool:
        """Whether every row was checked on one side at least (all-to-all checks only one)."""
        return bool(self.rows) and all(row.checked for row in self.rows)


class Transport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What NCCL says of its network with NCCL_DEBUG=INFO (gpu_stack §8.3).

    `network` is `IB`, `Socket` or a plugin's name, empty where nothing tells; `link` is `IB` or `RoCE`. Channels are counted by
    lines `via NET/…`: those between nodes. `ring_gdr` is what `Connected all rings` says, None where it is not said.
    """

    network: str = ""
    link: str = ""
    hcas: tuple[str, ...] = ()
    no_device: bool = False
    channels: int = 0
    gdr_channels: int = 0
    socket_channels: int = 0
    gdr_enabled: tuple[str, ...] = ()
    gdr_disabled: tuple[str, ...] = ()
    ring_gdr: bool | None = None
    verbs_missing: bool = False
    mnnvl: bool | None = None
    clique_size: int = 0
    ranks: int = 0
    nodes: int = 0
    version: str = ""

    @property
    def socket(self) -> bool:
        """Whether any traffic between nodes goes over TCP sockets."""
        return self.network.lower() == "socket" or self.socket_channels > 0 or self.no_device

    @property
    def gdr(self) -> bool | None:
        """Whether GPUDirect RDMA is in use on every channel; None where nothing tells.

        Current NCCL prints `via NET/IB/0/GDRDMA`, never the literal `[GDRDMA]` (gpu_stack §0.9). That an adapter could
        (`gdr_enabled`) does not say that a channel does.
        """
        if self.socket or self.gdr_disabled or self.ring_gdr is False:
            return False
        if self.channels:
            return self.gdr_channels == self.channels
        return True if self.ring_gdr else None


class NcclLog(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole log: its runs in order, its network, and its errors (the most telling first)."""

    runs: tuple[NcclRun, ...] = ()
    transport: Transport = Transport()
    errors: tuple[ToolError, ...] = ()


class NcclWant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a log must show.

    `floor` is in GB/s at the largest size, None where a site has none; `spread` is how far apart runs may be, as a share of the
    fastest. `rdma` and `gdr`: traffic between nodes must not fall back to sockets, and must use GPUDirect RDMA on every channel;
    `networks` are the names that NCCL may print as its network (empty: any but Socket). `ranks`, `hosts` and `hcas` are exact,
    0 where not known. `whole`: the log must hold a row for every size that the run announced, else the largest is not known.
    """

    floor: float | None = None
    runs: int = 1
    spread: float = 1.0
    ranks: int = 0
    hosts: int = 0
    hcas: int = 0
    rdma: bool = False
    gdr: bool = False
    networks: tuple[str, ...] = ()
    checked: bool = True
    whole: bool = True
