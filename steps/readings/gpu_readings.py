"""Readings of nvidia-smi in its forms and of dcgmi diag.

An output proves health only against a number of GPUs that the user states: a GPU that fell off the bus is in none of them.
"""

import re
from collections import Counter
from typing import Any

from steps.contract.node_tests.dcgm import DcgmRun
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.readers import gpu_query, gpu_tables
from steps.readers.gpu_query import GpuQuery, QueriedGpu
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, of_finding, passed, undecided
from steps.stages.validation import gate_dcgm, reader_dcgm

SMI, DCGM = "nvidia-smi", "dcgmi"
_HARDWARE, _DEPENDENCY = FailureClass.HARDWARE, FailureClass.DEPENDENCY
STATE_GPUS = "state how many there are: --expect expected_gpus=N"
_BROKEN = (
    (
        r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
        _DEPENDENCY,
        "the NVIDIA driver does not answer",
    ),
    (r"Failed to initialize NVML: (?P<what>[^\n]+)", _DEPENDENCY, "NVML cannot be initialised: {what}"),
    (r"Unable to determine the device handle for GPU ?(?P<what>[0-9A-Fa-f:.]+)?", _HARDWARE, "GPU {what} is lost"),
    (r"GPU is lost", _HARDWARE, "a GPU is lost"),
    (r"^No devices were found", _HARDWARE, "no GPU was found"),
    (r"\|[^\n|]*\bERR!", _HARDWARE, "a GPU reports ERR! instead of a value"),
)
"""Texts that nvidia-smi prints instead of an answer: pattern, class and cause."""


def is_broken(text: str) -> bool:
    """Return True if nvidia-smi printed an error instead of an answer."""
    return _error(text) is not None


def read_broken(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of an error of nvidia-smi."""
    return _error(captured.text) or undecided(SMI, "no error is recognised", {})


def _error(text: str) -> ToolReading | None:
    for pattern, failure_class, cause in _BROKEN:
        if match := re.search(pattern, text, re.MULTILINE):
            words = {name: value or "" for name, value in match.groupdict().items()}
            step = "read the node's kernel log (Xid), and compare the versions of driver and libraries"
            return failed(SMI, failure_class, cause.format(**words).replace("  ", " "), {}, next_step=step)
    return None


# ---- nvidia-smi -q -------------------------------------------------------------------------------------------------------------


def is_query(text: str) -> bool:
    """Return True for the text form of `nvidia-smi -q`."""
    return "NVSMI LOG" in text or re.search(r"^Attached GPUs\s*: \d", text, re.MULTILINE) is not None


def is_query_xml(text: str) -> bool:
    """Return True for the XML form of `nvidia-smi -q -x`, also if it is cut."""
    return "<nvidia_smi_log" in text


def read_query(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of the text form."""
    query = gpu_query.read(captured.text)
    figures: dict[str, Any] = {
        "attached_gpus": query.attached,
        "gpu_sections": len(query.gpus),
        "product": _distinct(gpu.product for gpu in query.gpus),
        "driver": query.driver,
        "cuda": query.cuda,
        "hw_slowdown_active": _throttled(query, "hw slowdown"),
        "hw_power_brake_active": _throttled(query, "hw power brake slowdown"),
        "sw_thermal_active": _throttled(query, "sw thermal slowdown"),
        "remapped_uncorrectable": [gpu.remapped_uncorrectable for gpu in query.gpus if gpu.remapped_uncorrectable is not None],
        "remap_failure": sum(bool(gpu.remap_failure) for gpu in query.gpus),
        "ecc_uncorrectable": [gpu.ecc_volatile_uncorrectable for gpu in query.gpus],
        "pcie_width": [_width(gpu.pcie_width) for gpu in query.gpus],
        "mig_devices": sum(gpu.mig_devices for gpu in query.gpus),
    }
    return _of_query(query, figures, site)


def read_query_xml(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of the XML form."""
    query = gpu_query.read_xml(captured.text)
    if query is None:
        return undecided(SMI, "the XML document is cut or broken", {}, expected="a whole document nvidia_smi_log")
    widths = [_width(gpu.pcie_width) for gpu in query.gpus]
    figures: dict[str, Any] = {
        "driver": query.driver,
        "cuda": query.cuda,
        "attached_gpus": query.attached,
        "gpu_elements": len(query.gpus),
        "products": _distinct(gpu.product for gpu in query.gpus),
        "mig": _distinct(gpu.mig_mode for gpu in query.gpus),
        "mig_devices": sum(gpu.mig_devices for gpu in query.gpus),
        "pcie_width": widths,
        "pcie_width_current": widths,
        "pcie_width_max": [_width(gpu.pcie_width_max) for gpu in query.gpus],
        "ecc_uncorrectable": [gpu.ecc_volatile_uncorrectable for gpu in query.gpus],
    }
    return _of_query(query, figures, site)


def _of_query(query: GpuQuery, figures: dict[str, Any], site: SiteValues) -> ToolReading:
    if problem := _fault(query):
        failure_class, cause, step = problem
        return failed(SMI, failure_class, cause, figures, next_step=step)
    sections = len(query.gpus)
    if not query.is_whole:
        words = f"incomplete: {query.attached if query.attached is not None else 'unknown'} GPUs attached, {sections} in the text"
        return undecided(SMI, words, figures, expected="a section for each attached GPU", next_step="capture the whole output")
    if words := _unreadable(query):
        return undecided(SMI, words, figures, expected="every value readable", next_step="run nvidia-smi as root")
    return _counted(SMI, sections, sum(gpu.mig_devices for gpu in query.gpus), figures, site)


def _fault(query: GpuQuery) -> tuple[FailureClass, str, str] | None:
    """Return class, cause and next step of the worst fault that a GPU reports about itself."""
    reset = "drain the node and reset the GPU; if it comes back, the GPU is for the vendor"
    for gpu in query.gpus:
        if gpu.lost:
            return _HARDWARE, f"{gpu.bus_id} has an error in place of {count(len(gpu.lost), 'value')}: {gpu.lost[0]}", reset
        if gpu.remap_failure:
            return _HARDWARE, f"row remapping failed on {gpu.bus_id}", "replace this GPU"
        if gpu.remap_pending:
            rows = f" ({gpu.remapped_uncorrectable} uncorrectable)" if gpu.remapped_uncorrectable is not None else ""
            return _HARDWARE, f"row remap pending{rows}: GPU reset needed", reset
        if gpu.ecc_volatile_uncorrectable:
            return _HARDWARE, f"{count(gpu.ecc_volatile_uncorrectable, 'uncorrectable ECC error')} on {gpu.bus_id}", reset
    return _stated(query) or _slowed(query) or _narrow(query)


def _stated(query: GpuQuery) -> tuple[FailureClass, str, str] | None:
    """Return the first fault that a GPU states in a field of its own, such as a reset that it needs."""
    gpu = next((gpu for gpu in query.gpus if gpu.faults), None)
    if gpu is None:
        return None
    others = sum(bool(gpu.faults) for gpu in query.gpus) - 1
    more = f" and {count(others, 'other GPU')}" if others else ""
    words = f"{gpu.faults[0]} on {gpu.bus_id}{more}"
    if gpu.faults[0].startswith(("fabric", "health")):
        return _DEPENDENCY, words, "see that the fabric manager runs and read its log; CUDA does not start before the fabric is up"
    return _HARDWARE, words, "drain the node, then reset the GPU or reboot as it says; if it comes back, it is for the vendor"


def _unreadable(query: GpuQuery) -> str:
    """Return what a GPU hides that it should tell; empty if nothing."""
    for gpu in query.gpus:
        if gpu.denied:
            return f"{gpu.denied[0]} on {gpu.bus_id}"
        # with MIG the counters are those of the MIG devices
        if gpu.ecc_mode == "Enabled" != gpu.mig_mode and gpu.ecc_volatile_uncorrectable is None:
            return f"no number of uncorrectable ECC errors on {gpu.bus_id}"
    return ""


def _slowed(query: GpuQuery) -> tuple[FailureClass, str, str] | None:
    names = {
        "hw power brake slowdown": ("HW power brake slowdown", "check power supplies and the power limit of rack and node"),
        "hw thermal slowdown": ("HW thermal slowdown", "check fans, air flow and coolant"),
        "hw slowdown": ("HW slowdown", "check power and cooling of the node"),
        "sw thermal slowdown": ("SW thermal slowdown", "check fans, air flow and coolant"),
    }
    for reason, (words, step) in names.items():
        slowed = _throttled(query, reason)
        if slowed:
            every = f"all {slowed} GPUs" if slowed == len(query.gpus) > 1 else count(slowed, "GPU")
            return _HARDWARE, f"{words} active on {every}", step
    return None


def _narrow(query: GpuQuery) -> tuple[FailureClass, str, str] | None:
    gpu = next((gpu for gpu in query.gpus if _is_narrow(gpu)), None)
    if gpu is None:
        return None
    place = f" on {gpu.bus_id}" if len(query.gpus) > 1 else ""
    return (
        _HARDWARE,
        f"PCIe width {gpu.pcie_width}x of {gpu.pcie_width_max}x{place}",
        "reseat the GPU or its riser, and check the slot",
    )


def _is_narrow(gpu: QueriedGpu) -> bool:
    return gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max


def _throttled(query: GpuQuery, reason: str) -> int:
    return sum(reason in gpu.throttle for gpu in query.gpus)


def _width(width: int | None) -> str | None:
    return None if width is None else f"{width}x"


def _distinct(values: Any) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))


def _counted(tool: str, gpus: int, mig_devices: int, figures: dict[str, Any], site: SiteValues) -> ToolReading:
    """Return the verdict by the numbers of GPUs and MIG devices."""
    wanted, mig = site.expected_gpus, site.expected_mig_devices
    if wanted is not None and gpus != wanted:
        step = "compare with lspci and the kernel log (Xid 79: fallen off the bus)"
        return failed(tool, _HARDWARE, f"{count(gpus, 'GPU')} instead of {wanted}", figures, next_step=step)
    if mig is not None and mig_devices != mig:
        words = f"{count(mig_devices, 'MIG device')} instead of {mig}"
        return failed(tool, FailureClass.INPUT, words, figures, next_step="compare with the MIG configuration of the node")
    if wanted is None:
        return undecided(tool, f"{count(gpus, 'GPU')} without a fault, and no number is stated", figures, next_step=STATE_GPUS)
    return passed(tool, figures, f"{count(gpus, 'GPU')}{f', {mig_devices} MIG devices' if mig_devices else ''}, no fault")


# ---- tables --------------------------------------------------------------------------------------------------------------------


def is_overview(text: str) -> bool:
    """Return True for the table that plain `nvidia-smi` prints."""
    return re.search(r"\| NVIDIA-SMI [\d.]+ ", text) is not None


def read_overview(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of the overview table."""
    table = gpu_tables.overview(captured.text)
    modes = _distinct(gpu.mig for gpu in table.gpus)
    names = _distinct(gpu.name for gpu in table.gpus)
    figures: dict[str, Any] = {
        "gpus": len(table.gpus),
        "product": names[0] if len(names) == 1 else names,
        "driver": table.driver,
        "cuda": table.cuda,
        "ecc_uncorrectable": [gpu.ecc for gpu in table.gpus],
        "mig": modes[0] if len(modes) == 1 else modes,
        "processes": table.processes,
    }
    bad = next((gpu for gpu in table.gpus if gpu.ecc), None)
    if bad is not None:
        step = "drain the node and reset the GPU; read nvidia-smi -q for remapped rows"
        return failed(
            SMI, _HARDWARE, f"{count(bad.ecc or 0, 'uncorrectable ECC error')} on GPU {bad.index}", figures, next_step=step
        )
    if table.processes is None:
        return undecided(SMI, "the table of processes is missing or cut", figures, expected="the whole output")
    if site.expected_mig_devices is not None and table.mig_devices is None:
        return undecided(SMI, "MIG is enabled, and the table of its devices is missing", figures, expected="the whole output")
    return _counted(SMI, len(table.gpus), table.mig_devices or 0, figures, site)


def is_list(text: str) -> bool:
    """Return True for `nvidia-smi -L`."""
    return _LISTED.search(text) is not None and not (is_nvlink_status(text) or is_without_nvlink(text))


_LISTED = re.compile(r"^GPU \d+: [^\n]*\(UUID: GPU-", re.MULTILINE)


def read_list(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of `nvidia-smi -L`."""
    table = gpu_tables.listed(captured.text)
    figures: dict[str, Any] = {"gpus": len(table.names), "mig_devices": len(table.mig_profiles), "products": _distinct(table.names)}
    if table.mig_profiles:
        figures["mig_profiles"] = dict(Counter(table.mig_profiles))
    if table.foreign:
        words = f"lines of another form of the command, which no rule judges: {table.foreign[0][:100]}"
        return undecided(SMI, words, figures, next_step="read nvidia-smi -L, nvlink --status or -q")
    return _counted(SMI, len(table.names), len(table.mig_profiles), figures, site)


_INACTIVE = re.compile(r"Unable to retrieve NVLink information", re.IGNORECASE)


def is_without_nvlink(text: str) -> bool:
    """Return True for `nvidia-smi nvlink` on a GPU of which no link is active: it prints a sentence in place of the links."""
    return _INACTIVE.search(text) is not None


def read_without_nvlink(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of that sentence: a fault, unless the site says that its GPUs have no NVLink."""
    gpus, silent = len(gpu_tables.listed(captured.text).names), len(_INACTIVE.findall(captured.text))
    figures: dict[str, Any] = {"gpus": gpus, "gpus_without_links": silent}
    if site.nvlink_expected is False or site.expected_nvlinks == 0:
        return _counted(SMI, gpus, 0, figures, site)
    step = "read the fabric manager's log and dmesg (SXid); cards without a bridge have no links: --expect nvlink_expected=false"
    return failed(SMI, _HARDWARE, f"no NVLink is active on {count(silent, 'GPU')}", figures, next_step=step)


def is_nvlink_status(text: str) -> bool:
    """Return True for `nvidia-smi nvlink --status`."""
    return _LISTED.search(text) is not None and re.search(r"^[ \t]+Link \d+: ", text, re.MULTILINE) is not None


def read_nvlink_status(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of `nvidia-smi nvlink --status`."""
    status = gpu_tables.nvlinks(captured.text)
    up = [speed for speed in status.links if speed.endswith("GB/s")]
    inactive = sum("inactive" in speed.lower() for speed in status.links)
    figures: dict[str, Any] = {
        "gpus": len(status.speeds),
        "links": len(status.links),
        "inactive": inactive,
        "link_speed": sorted(set(up)),
    }
    if inactive:
        down = [f"GPU {gpu}" for gpu, links in status.speeds.items() if any("inactive" in speed.lower() for speed in links)]
        step = "read nvidia-smi nvlink -e and the log of the fabric manager"
        return failed(SMI, _HARDWARE, f"{count(inactive, 'NVLink')} inactive: {', '.join(down)}", figures, next_step=step)
    if len(up) != len(status.links):
        return undecided(SMI, "a link's line is cut or shows no speed", figures, expected="a speed for every link")
    wanted = site.expected_nvlinks
    if wanted is None:
        return undecided(SMI, "no number of links is stated", figures, next_step="state it: --expect expected_nvlinks=N")
    short = [f"GPU {gpu} has {len(links)}" for gpu, links in status.speeds.items() if len(links) != wanted]
    if short and site.expected_gpus == len(status.speeds) and captured.ends_with_line:
        return failed(SMI, _HARDWARE, f"{', '.join(short)} instead of {wanted} NVLinks", figures)
    if short:
        return undecided(SMI, f"{', '.join(short)} instead of {wanted} NVLinks, or the output is cut", figures)
    return _counted(SMI, len(status.speeds), 0, figures, site)


def is_topology(text: str) -> bool:
    """Return True for the matrix of `nvidia-smi topo -m`."""
    return re.search(r"^[ \t]+GPU0\b[^\n]*(?:Affinity|GPU1)", text, re.MULTILINE) is not None


def read_topology(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of the matrix: NVLink between all pairs of GPUs, and the adapters beside each GPU."""
    matrix = gpu_tables.topology(captured.text)
    near = {gpu: nics for gpu, nics in matrix.nearest.items() if nics}
    used = {nic for nics in near.values() for nic in nics}
    figures: dict[str, Any] = {
        "gpus": len(matrix.gpus),
        "nvlinks": matrix.nvlinks,
        "link": matrix.common_link,
        "nics": len(matrix.nics),
        "numa_nodes": len({node for node in matrix.numa.values() if node != "N/A"}),
    }
    if matrix.nics:
        figures["pix_nic_per_gpu"] = {gpu: nics[0] if len(nics) == 1 else list(nics) for gpu, nics in near.items()}
        figures["nics_without_gpu"] = [nic for nic in matrix.nics.values() if nic not in used]
    if not matrix.is_whole:
        return undecided(SMI, "a row of the matrix is missing or cut", figures, expected="a row for each GPU")
    wanted = site.expected_nvlinks or (1 if site.nvlink_expected else 0)
    if wanted and matrix.nvlinks == 0 and len(matrix.gpus) > 1:
        bad = next((link for link in matrix.gpu_links.values() if not link.startswith("NV")), "")
        return failed(
            SMI, _HARDWARE, f"no NVLink between the GPUs ({bad})", figures, next_step="check bridges, baseboard and driver"
        )
    if matrix.nvlinks < wanted:
        return failed(SMI, _HARDWARE, f"{matrix.nvlinks} NVLinks between two GPUs instead of {wanted}", figures)
    if not wanted and site.nvlink_expected is None:
        return undecided(SMI, "no number of NVLinks is stated", figures, next_step="state it: --expect expected_nvlinks=N")
    return _counted(SMI, len(matrix.gpus), 0, figures, site)


# ---- dcgmi ---------------------------------------------------------------------------------------------------------------------


def is_dcgm(text: str) -> bool:
    """Return True for `dcgmi diag`, with or without `-j`."""
    if '"test_categories"' in text or '"DCGM Diagnostic"' in text:
        return True
    return re.search(r"^[|+]-+[ \t]+(?:Deployment|Integration|Hardware|Stress|Metadata)[ \t]+-+\+", text, re.MULTILINE) is not None


def is_dcgm_json(document: Any) -> bool:
    """Return True for the JSON document of `dcgmi diag -j`."""
    names = ("DCGM Diagnostic", "DCGM GPU Diagnostic", "test_categories")
    return isinstance(document, dict) and any(name in document for name in names)


def read_dcgm(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of a diagnostic."""
    run = reader_dcgm.read(captured.text)
    figures = _dcgm_figures(run) if run else {}
    # only a run of level 1 has no test that loads the GPUs
    level = 2 if run and any(test.loads_gpus for test in run.tests) else 1
    finding = gate_dcgm.problem(run, site.expected_gpus or 0, level)
    if finding is not None:
        return of_finding(DCGM, finding, figures, _dcgm_cause(run) if run else "")
    is_table = '"test_categories"' not in captured.text
    if is_table and not re.search(r"^\+-[-+]+\+\s*\Z", captured.text, re.MULTILINE):
        return undecided(DCGM, "the last line of the table is missing: the output may be cut", figures)
    if site.expected_gpus is None:
        return undecided(DCGM, "every test that ran passed, and no number of GPUs is stated", figures, next_step=STATE_GPUS)
    return passed(DCGM, figures, f"{count(run.count('pass') if run else 0, 'result')} passed on {len(run.gpus) if run else 0} GPUs")


def _dcgm_figures(run: DcgmRun) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    for test in run.tests:
        statuses.update({word.upper(): number for word, number in test.statuses.items()})
    figures: dict[str, Any] = {"statuses": dict(statuses)}
    bad = [test for test in run.tests if test.statuses.get("fail")]
    if bad:
        figures["failed"] = [test.name for test in bad]
        named = sorted({gpu for test in bad for failure in test.failures for gpu in failure.gpus})
        links = sorted({int(link) for test in bad for failure in test.failures for link in _LINK.findall(failure.warning)})
        figures |= {"gpus_named": named} if named else {}
        figures |= {"links_down": links} if links else {}
    optional = {"dcgm": run.version, "driver": run.driver, "gpus": len(run.gpus)}
    return figures | {name: value for name, value in optional.items() if value}


_LINK = re.compile(r"NvLink link (\d{1,3}) is")


def _dcgm_cause(run: DcgmRun) -> str:
    """Return the cause of the first failed test in few words; empty if its warning must speak for itself."""
    test = next((test for test in run.tests if test.statuses.get("fail")), None)
    if test is None:
        return ""
    warning = next((failure.warning for failure in test.failures if failure.warning), "")
    gpus = sorted({gpu for failure in test.failures for gpu in failure.gpus})
    where = ", ".join(map(str, gpus))
    if links := sorted({int(link) for link in _LINK.findall(warning)}):
        span = (
            f"{links[0]} to {links[-1]}" if len(links) > 1 and links == list(range(links[0], links[-1] + 1)) else str(links)[1:-1]
        )
        return f"{test.name} test: NVLink links {span} of GPU {where} down"
    if match := re.search(r"child process \(\d+\) exited with non-zero status (\d+)", warning):
        return f"{test.name} test: internal error, child process exited {match[1]}"
    if "stress level" in warning:
        return f"{test.name} below the desired stress level on GPU {where}"
    return ""
