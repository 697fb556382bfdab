"""Parses the tables of `nvidia-smi`: its overview, `-L`, `topo -m`, and `nvlink --status` (`man nvidia-smi`)."""

import re
from collections import Counter

from msgspec import Struct

MOST_GPUS = 1024
_VERSIONS = re.compile(r"\| NVIDIA-SMI (?P<smi>[\w.]+)\s+Driver Version: (?P<driver>[\w.]+)\s+CUDA Version: (?P<cuda>[\w./]+)")
_GPU_ROW = re.compile(
    r"^\|\s+(?P<index>\d{1,4})\s+(?P<name>\S.*?)\s+(?:On|Off|N/A)\s*\|\s+(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s+\w+\s*\|"
    r"\s+(?P<ecc>\S.*?)\s*\|\s*$"
)
_MIG_CELL = re.compile(r"^\|[^|]*\|[^|]*\|\s+(?P<mig>Enabled|Disabled|N/A)\*?\s*\|\s*$")
_PROCESS = re.compile(r"^\|\s+\d{1,4}\s+\S+\s+\S+\s+\d+\s+[CG+M]+\s+\S.*\|\s*$")
_LISTED_GPU = re.compile(r"^GPU (?P<index>\d{1,4}): (?P<name>[^\n(]*?) \(UUID: (?P<uuid>GPU-[\w-]+)\)[ \t]*$", re.MULTILINE)
_LISTED_MIG = re.compile(r"^[ \t]+MIG (?P<profile>\S+)[ \t]+Device[ \t]+\d+: \(UUID: MIG-[\w/-]+\)[ \t]*$", re.MULTILINE)
_MIG_ROW = re.compile(r"^\|(?:[ \t]+\d{1,4}){4}[ \t]*\|")
_LINK = re.compile(r"^[ \t]+Link (?P<link>\d{1,3}): (?P<speed>[\d.]+ GB/s|<inactive>|\S[^\n]*)$")
_LEGEND = re.compile(r"^[ \t]*(NIC\d+):[ \t]+(\S+)[ \t]*$", re.MULTILINE)


class OverviewGpu(Struct, frozen=True, kw_only=True):
    """A GPU in the overview. `ecc` is the number of volatile uncorrectable errors, None if it is no number."""

    index: int
    name: str
    bus_id: str
    ecc: int | None
    mig: str = ""


class GpuOverview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The table that plain `nvidia-smi` prints.

    `processes` is None if the second table is missing or cut, `mig_devices` if MIG is enabled and the table of devices is missing.
    """

    driver: str = ""
    cuda: str = ""
    gpus: tuple[OverviewGpu, ...] = ()
    processes: int | None = None
    mig_devices: int | None = 0


class GpuList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The list of `nvidia-smi -L`: names of GPUs, profiles of MIG devices, and lines that are of another form of the command."""

    names: tuple[str, ...] = ()
    mig_profiles: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


class NvlinkStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Links of `nvidia-smi nvlink --status`: for each GPU the speeds of its links, `<inactive>` for those that are down."""

    speeds: dict[int, tuple[str, ...]] = {}

    @property
    def links(self) -> tuple[str, ...]:
        """Return the speeds of all links."""
        return tuple(speed for links in self.speeds.values() for speed in links)


class GpuTopology(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The matrix of `nvidia-smi topo -m`.

    `gpu_links` has the connection of each pair of GPUs (`NV18`, `PIX`, `PHB`, `NODE`, `SYS`, …), `nics` the adapters by their
    labels, `nearest` for each GPU the adapters behind the same PCIe switch (PIX), and `numa` the NUMA affinity of each GPU.
    `is_whole` is False if a row is missing or short.
    """

    gpus: tuple[str, ...] = ()
    nics: dict[str, str] = {}
    gpu_links: dict[tuple[str, str], str] = {}
    nearest: dict[str, tuple[str, ...]] = {}
    numa: dict[str, str] = {}
    cpus: dict[str, str] = {}
    is_whole: bool = False

    @property
    def nvlinks(self) -> int:
        """Return the fewest NVLinks between any two GPUs."""
        counts = [int(link[2:]) if re.fullmatch(r"NV\d{1,3}", link) else 0 for link in self.gpu_links.values()]
        return min(counts, default=0)

    @property
    def common_link(self) -> str:
        """Return the connection that most pairs of GPUs have."""
        return Counter(self.gpu_links.values()).most_common(1)[0][0] if self.gpu_links else ""


def overview(text: str) -> GpuOverview:
    """Return the overview table."""
    versions = _VERSIONS.search(text)
    gpus: list[OverviewGpu] = []
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("| Processes:")), len(lines))
    for line in lines[:start]:
        if match := _GPU_ROW.match(line):
            ecc = int(match["ecc"]) if match["ecc"].isdecimal() and len(match["ecc"]) < 16 else None
            gpus.append(OverviewGpu(index=int(match["index"]), name=match["name"], bus_id=match["bus"], ecc=ecc))
        elif gpus and not gpus[-1].mig and (match := _MIG_CELL.match(line)):
            last = gpus.pop()
            gpus.append(OverviewGpu(index=last.index, name=last.name, bus_id=last.bus_id, ecc=last.ecc, mig=match["mig"]))
    return GpuOverview(
        driver=versions["driver"] if versions else "",
        cuda=versions["cuda"] if versions else "",
        gpus=tuple(gpus[:MOST_GPUS]),
        processes=_processes(lines[start:]),
        mig_devices=_mig_devices(lines[:start], any(gpu.mig == "Enabled" for gpu in gpus)),
    )


def _mig_devices(lines: list[str], is_enabled: bool) -> int | None:
    """Return the number of MIG devices in the table between those of the GPUs and the processes."""
    start = next((at for at, line in enumerate(lines) if line.startswith("| MIG devices:")), None)
    if start is None:
        return None if is_enabled else 0
    return sum(_MIG_ROW.match(line) is not None for line in lines[start:])


def _processes(lines: list[str]) -> int | None:
    """Return the number of processes in the second table; None if its last border is missing."""
    frame = [at for at, line in enumerate(lines) if re.match(r"^\+-{20,}\+[ \t]*$", line)]
    if not frame:
        return None
    rows = lines[: frame[0]]
    if any("No running processes found" in line for line in rows):
        return 0
    return sum(_PROCESS.match(line) is not None for line in rows)


def listed(text: str) -> GpuList:
    """Return the GPUs and MIG devices of `nvidia-smi -L`."""
    return GpuList(
        names=tuple(match["name"] for match in _LISTED_GPU.finditer(text)),
        mig_profiles=tuple(match["profile"] for match in _LISTED_MIG.finditer(text)),
        foreign=tuple(line.strip() for line in text.splitlines() if _FOREIGN.match(line) and not _OWN.match(line))[:MOST_GPUS],
    )


_FOREIGN = re.compile(r"[ \t]+\S|GPU \d|NVML|Unable to ")
_OWN = re.compile(rf"{_LISTED_GPU.pattern}|{_LISTED_MIG.pattern}")


def nvlinks(text: str) -> NvlinkStatus:
    """Return the links of `nvidia-smi nvlink --status`; a link whose line is cut has what is left of its speed."""
    speeds: dict[int, list[str]] = {}
    links: list[str] = []
    for line in text.splitlines():
        if match := _LISTED_GPU.match(line):
            links = speeds.setdefault(int(match["index"]), [])
        elif (match := _LINK.match(line)) and len(links) < MOST_GPUS:
            links.append(match["speed"])
    return NvlinkStatus(speeds={gpu: tuple(values) for gpu, values in speeds.items()})


def topology(text: str) -> GpuTopology:
    """Return the matrix of `nvidia-smi topo -m`, with tabs or blanks between its columns."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if re.match(r"^[ \t]*GPU0\b(?:[ \t]+(?:GPU|NIC|mlx)\d*\w*)*", line)), None)
    if start is None:
        return GpuTopology()
    columns = re.findall(r"GPU\d+(?!\S)|NIC\d+|mlx\w+|CPU Affinity|NUMA Affinity|GPU NUMA ID", lines[start])
    labels = [name for name in columns if re.match(r"GPU\d|NIC|mlx", name)]
    rows = {words[0]: words[1:] for line in lines[start + 1 :] if (words := line.split()) and words[0] in labels}
    gpus = tuple(name for name in labels if name.startswith("GPU"))
    cells = {name: dict(zip(labels, row, strict=False)) for name, row in rows.items()}
    legend = dict(_LEGEND.findall(text))
    nics = {name: legend.get(name, name) for name in labels if not name.startswith("GPU")}
    affinity = {name: row[len(labels) :] for name, row in rows.items() if name in gpus}
    return GpuTopology(
        gpus=gpus,
        nics=nics,
        gpu_links={
            (first, second): cells[first][second]
            for first in gpus
            for second in gpus
            if first < second and second in cells.get(first, {})
        },
        nearest={gpu: tuple(nics[nic] for nic in nics if cells.get(gpu, {}).get(nic) == "PIX") for gpu in gpus},
        numa={gpu: words[1] for gpu, words in affinity.items() if len(words) > 1},
        cpus={gpu: words[0] for gpu, words in affinity.items() if words},
        is_whole=all(name in rows and len(rows[name]) >= len(labels) for name in gpus)
        and all(len(affinity.get(name, ())) >= ("CPU Affinity" in columns) + ("NUMA Affinity" in columns) for name in gpus),
    )
