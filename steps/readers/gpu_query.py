"""Parses `nvidia-smi -q` and `nvidia-smi -q -x` of driver branches 510 to 580 into one form.

The text form indents by four spaces a level; names of some fields changed (`Clocks Throttle Reasons` is now `Clocks Event Reasons`,
`GPU Current Temp`). Format: `man nvidia-smi`, section GPU ATTRIBUTES.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from xml.etree import ElementTree

from msgspec import Struct

MOST_GPUS = 1024
LARGEST_XML = 32 << 20
_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])[ \t]*$")
_FIELD = re.compile(r"^(?P<indent> *)(?P<name>\S[^:\n]*?)[ \t]*(?::(?:[ \t]+(?P<value>[^\n]*))?)?$")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DEPRECATED = "requested functionality has been deprecated"
_NEUTRAL = frozenset({"", "n/a", "none", "no", "not supported", "false", _DEPRECATED, f"[{_DEPRECATED}]"})
"""Values that tell of no fault. Drivers from 570 on print the words of NVML_ERROR_DEPRECATED for fields that they gave up, such as
GPU Reset Status (https://forums.developer.nvidia.com/t/gpu-reset-deprecated-570/331532).
"""
GOOD_VALUES = {
    ("gpu reset status", "reset required"): "",
    ("gpu reset status", "drain and reset recommended"): "",
    ("", "gpu recovery action"): "",
    ("aggregate", "sram threshold exceeded"): "",
    ("retired pages", "pending page blacklist"): "",
    ("retired pages", "pending blacklist"): "",
    ("retired pages", "pending retirement"): "",
    ("fabric", "state"): "completed",
    ("fabric", "status"): "success",
    ("health", "summary"): "healthy",
    ("health", "bandwidth"): "full",
    ("health", "degraded bandwidth"): "",
    ("health", "route recovery in progress"): "",
    ("health", "route unhealthy"): "",
    ("health", "access timeout recovery"): "",
    ("health", "incorrect configuration"): "",
}
"""Fields, by their section, in which a GPU says that something is wrong with it, and the good value beside those of _NEUTRAL."""
_POWER_LIMITS = ("GPU Power Readings/Current Power Limit", "Power Readings/Current Power Limit", "Power Readings/Power Limit")
"""Paths of the limit in force, of newer drivers first; a module with a CPU has one of its own beside that of its GPU."""
_LOST = re.compile(r"\[?(?:GPU requires reset|GPU is lost|Unknown Error|ERR!)\]?", re.IGNORECASE)
_DENIED = re.compile(r"\[?Insufficient Permissions\]?", re.IGNORECASE)


class QueriedGpu(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU as `nvidia-smi -q` shows it; None where the output has no value (or `N/A`).

    `throttle` has the clock event reasons that are active, by their names in lower case: `hw slowdown`, `hw power brake slowdown`,
    `hw thermal slowdown`, `sw thermal slowdown`, `sw power cap`, … `fields` has every value by its path in the text form, so that
    a caller can ask for others. `faults` are the fields in which the GPU says that something is wrong with it, `lost` those that
    hold an error in place of a value, `denied` those that need other rights.
    """

    bus_id: str
    product: str = ""
    uuid: str = ""
    vbios: str = ""
    mig_mode: str = ""
    mig_devices: int = 0
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    ecc_mode: str = ""
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    throttle: tuple[str, ...] = ()
    temperature: float | None = None
    power_watts: float | None = None
    power_limit: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    is_whole: bool = False
    faults: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    fields: dict[str, str] = {}


class GpuQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of `nvidia-smi -q`: versions, the announced number of GPUs, and the GPUs in the text."""

    driver: str = ""
    cuda: str = ""
    attached: int | None = None
    gpus: tuple[QueriedGpu, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return True if all announced GPUs are in the text, with all of their sections."""
        return bool(self.gpus) and self.attached == len(self.gpus) and all(gpu.is_whole for gpu in self.gpus)


def read(text: str) -> GpuQuery:
    """Return the GPUs in the text form of `nvidia-smi -q`."""
    general: dict[str, str] = {}
    gpus: list[tuple[str, dict[str, str]]] = []
    stack: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _GPU.match(line):
            if len(gpus) == MOST_GPUS:
                break
            gpus.append((match[1], {}))
            stack = []
        elif gpus and not line.startswith("    "):
            # every line of a GPU's section is indented: this one is of another program
            continue
        elif match := _FIELD.match(line):
            indent = len(match["indent"])
            stack = [entry for entry in stack if entry[0] < indent]
            path = "/".join([*(name for _, name in stack), match["name"]])
            if match["value"] is None:
                stack.append((indent, match["name"]))
            fields = gpus[-1][1] if gpus and indent else general
            fields.setdefault(path, (match["value"] or "").strip())
    return GpuQuery(
        driver=general.get("Driver Version", ""),
        cuda=general.get("CUDA Version", ""),
        attached=_whole(general.get("Attached GPUs")),
        gpus=tuple(_gpu(bus, fields) for bus, fields in gpus),
    )


def _gpu(bus: str, fields: Mapping[str, str]) -> QueriedGpu:
    reasons = {**_below(fields, "Clocks Event Reasons"), **_below(fields, "Clocks Throttle Reasons")}
    link = "PCI/GPU Link Info"
    remapped = _below(fields, "Remapped Rows")
    return QueriedGpu(
        bus_id=bus,
        product=fields.get("Product Name", ""),
        uuid=fields.get("GPU UUID", ""),
        vbios=fields.get("VBIOS Version", ""),
        mig_mode=fields.get("MIG Mode/Current", ""),
        mig_devices=sum(1 for path in fields if re.fullmatch(r"MIG Device(?: \d+)?", path)),
        pcie_gen=_whole(fields.get(f"{link}/PCIe Generation/Current")),
        pcie_gen_max=_whole(fields.get(f"{link}/PCIe Generation/Max")),
        pcie_width=_whole(fields.get(f"{link}/Link Width/Current")),
        pcie_width_max=_whole(fields.get(f"{link}/Link Width/Max")),
        ecc_mode=fields.get("ECC Mode/Current", ""),
        ecc_volatile_uncorrectable=_ecc(_below(fields, "ECC Errors/Volatile")),
        ecc_aggregate_uncorrectable=_ecc(_below(fields, "ECC Errors/Aggregate")),
        remapped_correctable=_whole(remapped.get("Correctable Error")),
        remapped_uncorrectable=_whole(remapped.get("Uncorrectable Error")),
        remap_pending=_yes(remapped.get("Pending")),
        remap_failure=_yes(remapped.get("Remapping Failure Occurred")),
        throttle=tuple(path.rsplit("/", 1)[-1].lower() for path, value in reasons.items() if value == "Active"),
        temperature=_number(fields.get("Temperature/GPU Current Temp")),
        power_watts=_number(fields.get("GPU Power Readings/Power Draw", fields.get("Power Readings/Power Draw"))),
        power_limit=_number(next((fields[path] for path in _POWER_LIMITS if path in fields), "")),
        sm_clock_mhz=_number(fields.get("Clocks/SM")),
        sm_clock_max_mhz=_number(fields.get("Max Clocks/SM")),
        # the list of processes is the last section
        is_whole="Processes" in fields and "Product Name" in fields,
        faults=_faults(fields.items()),
        lost=_matching(fields.items(), _LOST),
        denied=_matching(fields.items(), _DENIED),
        fields=dict(fields),
    )


def _faults(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the faults that a GPU reports, as `fabric state: In Progress`; names of the XML form read like those of the text."""
    faults: list[str] = []
    for path, value in fields:
        section, _, name = path.lower().replace("_", " ").rpartition("/")
        key = (section.rpartition("/")[2], name)
        if key not in GOOD_VALUES or value.lower() in (*_NEUTRAL, GOOD_VALUES[key]) or _LOST.fullmatch(value):
            continue
        faults.append(f"{' '.join(filter(None, key)) if key[0] in ('fabric', 'health') else name}: {value[:100]}")
    return tuple(faults)


def _matching(fields: Iterable[tuple[str, str]], words: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(f"{path.rpartition('/')[2]}: {value}" for path, value in fields if words.fullmatch(value))


def _below(fields: Mapping[str, str], section: str) -> dict[str, str]:
    return {path[len(section) + 1 :]: value for path, value in fields.items() if path.startswith(f"{section}/")}


def _ecc(counts: Mapping[str, str]) -> int | None:
    """Return the sum of uncorrectable errors; older drivers print `Double Bit/Total` instead."""
    names = [name for name in counts if "Uncorrectable" in name and "Threshold" not in name] or [
        name for name in counts if name == "Double Bit/Total"
    ]
    values = [_whole(counts[name]) for name in names]
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def read_xml(text: str) -> GpuQuery | None:
    """Return the GPUs in the XML form; None if the text is no whole XML document of nvidia-smi."""
    # entities could grow without bound, and nvidia-smi declares none
    if "<!ENTITY" in text or len(text) > LARGEST_XML:
        return None
    try:
        root = ElementTree.fromstring(text.strip())
    except (ElementTree.ParseError, ValueError):
        return None
    if root.tag != "nvidia_smi_log":
        return None
    return GpuQuery(
        driver=_text(root, "driver_version"),
        cuda=_text(root, "cuda_version"),
        attached=_whole(_text(root, "attached_gpus")),
        gpus=tuple(_xml_gpu(gpu) for gpu in root.findall("gpu")[:MOST_GPUS]),
    )


def _xml_gpu(gpu: ElementTree.Element) -> QueriedGpu:
    link = "pci/pci_gpu_link_info"
    fields = list(_xml_fields(gpu, ""))
    return QueriedGpu(
        bus_id=gpu.get("id", ""),
        product=_text(gpu, "product_name"),
        uuid=_text(gpu, "uuid"),
        vbios=_text(gpu, "vbios_version"),
        mig_mode=_text(gpu, "mig_mode/current_mig"),
        mig_devices=len(gpu.findall("mig_devices/mig_device")),
        pcie_gen=_whole(_text(gpu, f"{link}/pcie_gen/current_link_gen")),
        pcie_gen_max=_whole(_text(gpu, f"{link}/pcie_gen/max_link_gen")),
        pcie_width=_whole(_text(gpu, f"{link}/link_widths/current_link_width")),
        pcie_width_max=_whole(_text(gpu, f"{link}/link_widths/max_link_width")),
        ecc_mode=_text(gpu, "ecc_mode/current_ecc"),
        ecc_volatile_uncorrectable=_xml_ecc(gpu.find("ecc_errors/volatile")),
        ecc_aggregate_uncorrectable=_xml_ecc(gpu.find("ecc_errors/aggregate")),
        remapped_correctable=_whole(_text(gpu, "remapped_rows/remapped_row_corr")),
        remapped_uncorrectable=_whole(_text(gpu, "remapped_rows/remapped_row_unc")),
        remap_pending=_yes(_text(gpu, "remapped_rows/remapped_row_pending")),
        remap_failure=_yes(_text(gpu, "remapped_rows/remapped_row_failure")),
        throttle=tuple(_xml_reasons(gpu)),
        temperature=_number(_text(gpu, "temperature/gpu_temp")),
        power_watts=_number(_text(gpu, "gpu_power_readings/power_draw") or _text(gpu, "power_readings/power_draw")),
        power_limit=_number(_text(gpu, "gpu_power_readings/current_power_limit") or _text(gpu, "power_readings/power_limit")),
        sm_clock_mhz=_number(_text(gpu, "clocks/sm_clock")),
        sm_clock_max_mhz=_number(_text(gpu, "max_clocks/sm_clock")),
        is_whole=gpu.find("product_name") is not None,
        faults=_faults(fields),
        lost=_matching(fields, _LOST),
        denied=_matching(fields, _DENIED),
    )


def _xml_fields(element: ElementTree.Element, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    for child in element:
        # a list of thousands of clocks
        if child.tag == "supported_clocks" or depth > MOST_LEVELS:
            continue
        yield f"{path}{child.tag}", (child.text or "").strip()
        yield from _xml_fields(child, f"{path}{child.tag}/", depth + 1)


MOST_LEVELS = 6


def _xml_reasons(gpu: ElementTree.Element) -> Iterator[str]:
    for section in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for reason in gpu.iterfind(f"{section}/*"):
            if (reason.text or "").strip() == "Active":
                name = re.sub(r"^clocks_(?:event|throttle)_reason_", "", reason.tag)
                yield name.replace("_", " ")


def _xml_ecc(section: ElementTree.Element | None) -> int | None:
    if section is None:
        return None
    names = [child for child in section if "uncorrectable" in child.tag and "threshold" not in child.tag]
    values = [_whole(child.text) for child in names] or [_whole(_text(section, "double_bit/total"))]
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None


def _text(element: ElementTree.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _number(text: str | None) -> float | None:
    match = _NUMBER.match((text or "").strip()[:40])
    return float(match[0]) if match else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return int(number) if number is not None and abs(number) < 1e15 else None


def _yes(text: str | None) -> bool | None:
    return {"Yes": True, "No": False}.get((text or "").strip())
