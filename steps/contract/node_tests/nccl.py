"""NCCL tests: the runs in one log and the network that they used, before a gate judges them.

Formats: https://github.com/NVIDIA/nccl-tests and https://github.com/NVIDIA/nccl.
"""

from msgspec import Struct

from steps.contract.verdict import CauseRank, ToolError


class NcclRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results for one message size. Bandwidths are bus bandwidths in GB/s; a side that was not printed is None.

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
        """Return the number of wrong elements of both sides."""
        return self.wrong_out_of_place + self.wrong_in_place

    @property
    def least(self) -> float | None:
        """Return the lower bandwidth of the sides that were printed."""
        first, second = self.out_of_place, self.in_place
        if first is None or second is None:
            return second if first is None else first
        return first if first < second else second

    @property
    def speed(self) -> float:
        """Return the lower bandwidth of both sides for comparisons; a row without a bandwidth counts as the slowest."""
        least = self.least
        return -1.0 if least is None else least


class NcclRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of one of the nccl-tests.

    - `started`, `concluded`: the run's own marks (releases before 2.17 print none).
    - `out_of_bounds`: None if the summary is missing.
    - `ranks`: number of device lines. `world`: size of the communicator as the log tells it (0: unknown).
    - `average`: in GB/s, over all message sizes, so it says nothing about the largest size.
    - `sizes`: how many sizes the run announced before it began (0: unknown).
    """

    collective: str = ""
    version: str = ""
    started: bool = False
    concluded: bool = False
    rows: tuple[NcclRow, ...] = ()
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
        """Return True if the run finished by itself. A release that announces its start must announce its end."""
        # releases before 2.17 print no marks, and their summary comes last
        return self.concluded or (not self.started and self.out_of_bounds is not None)

    @property
    def largest(self) -> NcclRow | None:
        """Return the row of the largest size; if there are several, the slowest one."""
        slowest: NcclRow | None = None
        for row in self.rows:
            if slowest is None or row.size > slowest.size or (row.size == slowest.size and row.speed < slowest.speed):
                slowest = row
        return slowest

    @property
    def fastest(self) -> float | None:
        """Return the highest bus bandwidth of any size in GB/s."""
        fastest: float | None = None
        for row in self.rows:
            for side in (row.out_of_place, row.in_place):
                if side is not None and (fastest is None or side > fastest):
                    fastest = side
        return fastest

    @property
    def wrong_sides(self) -> int:
        """Return the number of sides of rows with wrong elements."""
        sides = 0
        for row in self.rows:  # a generator would take most of the time in which a gate judges 30,000 runs
            sides += (row.wrong_out_of_place > 0) + (row.wrong_in_place > 0)
        return sides

    @property
    def unchecked_sides(self) -> int:
        """Return the number of sides of rows whose correctness was not checked."""
        return sum(row.unchecked for row in self.rows)

    @property
    def checked(self) -> bool:
        """Return True if every row was checked on at least one side (all-to-all checks only one)."""
        for row in self.rows:
            if not row.checked:
                return False
        return bool(self.rows)


MOST_SETS = 16
"""Most sets of adapters of single hosts that are kept; hosts have one set, or one for each kind of machine, if names are alike."""


class AdapterSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The adapters that NCCL uses on a host, and the first host that uses exactly these.

    `adapters` maps their names to link layers (`IB` or `RoCE`; empty if unknown). `host` is empty if the log does not tell it.
    """

    adapters: dict[str, str]
    host: str = ""


class NcclTransport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The network that NCCL used, from its lines with NCCL_DEBUG=INFO.

    `network` is `IB`, `Socket` or a plugin's name, empty if unknown; `link` is `IB` or `RoCE`. `hcas` are the adapters of all hosts
    together, `adapter_sets` those that single hosts use, each set once, the smallest ones first. Channels are counted by lines `via
    NET/…`, which are those between nodes. `ring_gdr` is the value in `Connected all rings`, None if that line is missing.
    """

    network: str = ""
    link: str = ""
    hcas: tuple[str, ...] = ()
    adapter_sets: tuple[AdapterSet, ...] = ()
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
        """Return True if any traffic between nodes goes over TCP sockets."""
        return self.network.lower() == "socket" or self.socket_channels > 0 or self.no_device

    @property
    def gdr(self) -> bool | None:
        """Return True if every channel uses GPUDirect RDMA, None if the log does not tell.

        Current NCCL prints `via NET/IB/0/GDRDMA`, never the literal `[GDRDMA]` (src/transport/net.cc of NVIDIA/nccl). That an
        adapter supports it (`gdr_enabled`) does not mean that a channel uses it.
        """

        if self.socket or self.gdr_disabled or self.ring_gdr is False:
            return False
        if self.channels:
            return self.gdr_channels == self.channels
        return True if self.ring_gdr else None


class NcclLog(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole log: its runs in order, its network, and its errors, the first cause first.

    `last` is the log's last line of free text if no run came to its end; empty if the last run did.
    """

    runs: tuple[NcclRun, ...] = ()
    transport: NcclTransport = NcclTransport()
    errors: tuple[ToolError, ...] = ()
    last: str = ""

    @property
    def ended(self) -> bool:
        """Return True if the log's last run finished by itself."""
        return bool(self.runs) and self.runs[-1].ended

    @property
    def stated(self) -> tuple[ToolError, ...]:
        """Return the errors that explain the outcome. A warning that no rule knows explains nothing after a run that ended."""
        return tuple(error for error in self.errors if not (self.ended and error.rank is CauseRank.UNKNOWN))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings of NCCL that no rule knows."""
        return tuple(error.cause for error in self.errors if error.rank is CauseRank.UNKNOWN)


class NcclWant(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectations on a log.

    - `floor`: GB/s at the largest size, None if the site has none.
    - `spread`: largest difference between runs, as a share of the fastest.
    - `rdma`, `gdr`: traffic between nodes must not fall back to sockets, and must use GPUDirect RDMA on every channel.
    - `networks`: names that NCCL may print as its network (empty: any but Socket).
    - `ranks`, `hosts`: exact numbers, 0 if unknown.
    - `hcas`: exact number of adapters that each host uses, 0 if unknown.
    - `link`: link layer that all of them have, `IB` or `RoCE`; empty if unknown. `adapters`: their names, empty if not planned.
    - `whole`: the log must hold a row for every size that the run announced, else the largest is not known.
    """

    floor: float | None = None
    runs: int = 1
    spread: float = 1.0
    ranks: int = 0
    hosts: int = 0
    hcas: int = 0
    link: str = ""
    adapters: tuple[str, ...] = ()
    rdma: bool = False
    gdr: bool = False
    networks: tuple[str, ...] = ()
    checked: bool = True
    whole: bool = True
