"""Readings of adapters and links of a host: ibstat, ibdev2netdev, lspci and perftest."""

import re
from collections import Counter
from typing import Any

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.readers import fabric_ports, pci_listing, perftest_report
from steps.readers.fabric_ports import FabricPort
from steps.readers.pci_listing import PciDevice
from steps.readers.perftest_report import PerftestReport
from steps.readings.captured_text import CapturedText
from steps.readings.gpu_readings import STATE_GPUS
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, passed, undecided

IBSTAT, IBDEV, LSPCI, PERFTEST = "ibstat", "ibdev2netdev", "lspci", "perftest"
_HARDWARE = FailureClass.HARDWARE
_LAYERS = {"infiniband": "InfiniBand", "ib": "InfiniBand", "roce": "Ethernet", "ethernet": "Ethernet"}


def is_ibstat(text: str) -> bool:
    """Return True for the output of ibstat."""
    return re.search(r"^CA '[\w.-]+'", text, re.MULTILINE) is not None


def read_ibstat(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of ibstat: enough ports of the site's fabric and rate are active. Others may be down."""
    ports = fabric_ports.read(captured.text)
    readings = [_of_ports(host, site) for host in _by_host(ports)]
    order = {"fail": 0, "inconclusive": 1}
    return min(readings, key=lambda reading: order.get(reading.verdict.value, 2))


def _by_host(ports: tuple[FabricPort, ...]) -> list[tuple[FabricPort, ...]]:
    """Return the ports of each host: where a port is there a second time, the output of another host begins."""
    hosts: list[dict[tuple[str, int], FabricPort]] = [{}]
    for port in ports:
        if (port.adapter, port.number) in hosts[-1]:
            hosts.append({})
        hosts[-1][port.adapter, port.number] = port
    return [tuple(host.values()) for host in hosts]


def _of_ports(ports: tuple[FabricPort, ...], site: SiteValues) -> ToolReading:
    figures = _port_figures(ports)
    fabric = [port for port in ports if _is_of(port, site)]
    active = [port for port in fabric if port.is_active]
    down = [port for port in ports if not port.is_active and port.number]
    if any(not port.is_whole for port in ports):
        return undecided(IBSTAT, "the last port is cut", figures, expected="every port with its link layer")
    if site.expected_ports is None:
        step = "state how many must be active: --expect expected_ports=N (and expected_rate_gbps, fabric)"
        words = f"{len(active)} of {len(ports)} ports active, and no number is stated"
        return undecided(IBSTAT, words, figures, next_step=step)
    alike = Counter((port.link_layer, port.rate) for port in active)
    if len(active) >= site.expected_ports > max(alike.values(), default=0):
        kinds = ", ".join(f"{number} of {layer} {rate or 0:g}" for (layer, rate), number in alike.items())
        step = "state which of them count: --expect fabric=infiniband|roce and --expect expected_rate_gbps=N"
        return undecided(IBSTAT, f"active ports differ: {kinds} Gbit/s", figures, next_step=step)
    if len(active) >= site.expected_ports:
        return passed(IBSTAT, figures, f"{len(active)} of {site.expected_ports} expected ports active")
    words = _down_words(down)
    cause = f"{words}{': ' if words else ''}{len(active)} of {site.expected_ports} ports active"
    return failed(IBSTAT, _HARDWARE, cause, figures, next_step="Polling: cable or the port at its other end; Disabled: enable it")


def _is_of(port: FabricPort, site: SiteValues) -> bool:
    layer = _LAYERS.get(site.fabric or "")
    rate = site.expected_rate_gbps
    if site.fabric == "efa":
        # adapters of EFA have no link layer of either kind
        return False
    return bool(port.number) and layer in (None, port.link_layer) and rate in (None, port.rate)


def _down_words(down: list[FabricPort]) -> str:
    states = dict.fromkeys(port.physical or port.state for port in down)
    if len(states) == 1:
        return f"{' and '.join(sorted((port.adapter for port in down), key=_natural))} {next(iter(states))}"
    return ", ".join(f"{port.adapter} {port.physical or port.state}" for port in down)


def _natural(name: str) -> list[object]:
    return [(1, int(part)) if part.isdecimal() else (0, part) for part in re.findall(r"\d{1,9}|\D+", name)]


def _port_figures(ports: tuple[FabricPort, ...]) -> dict[str, Any]:
    real = [port for port in ports if port.number]

    def named(state: str) -> list[str]:
        return [port.adapter for port in real if port.physical == state]

    def fast(layer: str) -> int:
        return sum(port.is_active and port.link_layer == layer and port.rate == 400 for port in real)

    rates = sorted({port.rate for port in real if port.rate is not None})
    return {
        "hcas": len({port.adapter for port in ports}),
        "active": sum(port.is_active for port in real),
        "down": [port.adapter for port in real if not port.is_active],
        "rates": [int(rate) if rate == int(rate) else rate for rate in rates],
        "infiniband_ports": sum(port.link_layer == "InfiniBand" for port in real),
        "ethernet_ports": sum(port.link_layer == "Ethernet" for port in real),
        "infiniband_400_active": fast("InfiniBand"),
        "roce_400_active": fast("Ethernet"),
        "polling": named("Polling"),
        "disabled": named("Disabled"),
    }


def is_ibdev2netdev(text: str) -> bool:
    """Return True for the output of ibdev2netdev."""
    return bool(fabric_ports.mappings(text[:100_000]))


def read_ibdev2netdev(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of ibdev2netdev. `Down` is the state of the network device; only `-v` shows that of the RDMA port."""
    lines = fabric_ports.mappings(captured.text)
    figures: dict[str, Any] = {
        "devices": len(lines),
        "up": [line.device for line in lines if line.is_up],
        "ib_netdevs": sum(line.netdev.startswith("ib") for line in lines),
    }
    known = [line for line in lines if line.state]
    if len(lines) == 1 and known:
        figures |= {"port": known[0].state, "netdev": "Up" if known[0].is_up else "Down"}
    if not known:
        words = "these are states of the network devices: an InfiniBand port without IPoIB is Down here"
        return undecided(IBDEV, words, figures, next_step="judge the RDMA ports by ibstat, or by ibdev2netdev -v")
    active = sum(line.state == "ACTIVE" for line in known)
    if site.expected_ports is None:
        step = "state how many must be active: --expect expected_ports=N"
        return undecided(IBDEV, f"{active} of {len(lines)} ports ACTIVE, and no number is stated", figures, next_step=step)
    if active < site.expected_ports:
        bad = ", ".join(f"{line.device} {line.state}" for line in known if line.state != "ACTIVE")
        return failed(IBDEV, _HARDWARE, f"{bad or 'ports missing'}: {active} of {site.expected_ports} ports active", figures)
    return passed(IBDEV, figures, f"{active} ports ACTIVE")


def is_lspci(text: str) -> bool:
    """Return True for the output of lspci."""
    devices = pci_listing.read(text[:200_000])
    known = r"controller|bridge|Bridge|Memory|SMBus|accelerator|peripheral|Class|encryption|Communication|device"
    return any(re.search(known, device.kind) for device in devices) and (
        len(devices) > 1 or "Lnk" in text or bool(devices[0].device)
    )


def read_lspci(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of lspci: PCIe widths of GPUs, NVSwitches and adapters, and their numbers."""
    devices = pci_listing.read(captured.text)
    gpus = sum(device.is_gpu for device in devices)
    switches = sum(device.is_nvswitch for device in devices)
    watched = [device for device in devices if device.is_nvidia or "Mellanox" in device.name or device.vendor == "15b3"]
    narrow = [device for device in watched if device.is_narrow]
    figures: dict[str, Any] = {"gpus": gpus, "nvswitch_bridges": switches, "downgraded_devices": [device.slot for device in narrow]}
    if len(watched) == 1 and watched[0].width:
        only = watched[0]
        figures |= {"cap_width": only.capable_width, "sta_width": only.width}
        figures |= {"cap_speed": only.capable_speed, "sta_speed": only.speed}
    if silent := [device.slot for device in watched if device.is_silent]:
        figures["silent_devices"] = silent
        step = "read the kernel log (Xid 79), power the node off and on; if it comes back, the card is for the vendor"
        cause = f"{count(len(silent), 'device')} fell off the bus (rev ff): {', '.join(silent[:8])}"
        return failed(LSPCI, _HARDWARE, cause, figures, next_step=step)
    if narrow:
        first = narrow[0]
        where = f" on {first.slot}" if len(watched) > 1 else ""
        cause = f"PCIe width {first.width} of {first.capable_width} (downgraded){where}"
        return failed(LSPCI, _HARDWARE, cause, figures, next_step="reseat the card or its riser, and check the slot")
    for words, number, wanted in (("GPU", gpus, site.expected_gpus), ("NVSwitch", switches, site.expected_nvswitches)):
        if wanted is not None and number < wanted and captured.ends_with_line:
            return failed(LSPCI, _HARDWARE, f"{number} of {wanted} {words}es on the PCI bus".replace("GPUes", "GPUs"), figures)
        if wanted is not None and number != wanted:
            return undecided(LSPCI, f"{number} instead of {wanted} of {words}, or the output is cut", figures)
    if not captured.ends_with_line and not _ends_with_device(captured.text, devices):
        return undecided(LSPCI, "the last line is cut", figures)
    if site.expected_gpus is None and site.expected_nvswitches is None:
        return undecided(LSPCI, f"{count(gpus, 'GPU')}, and no number is stated", figures, next_step=STATE_GPUS)
    return passed(LSPCI, figures, f"{count(gpus, 'GPU')}, no link with fewer lanes than it has")


def _ends_with_device(text: str, devices: tuple[PciDevice, ...]) -> bool:
    """Return True if the last line of a listing, which has no end, is the whole line of its last device.

    A line may be cut before its revision. Revision 0 is never printed, so such a line counts as whole beside one of its own kind.
    """
    lines = pci_listing.read(text.rpartition("\n")[2])
    if not lines or not lines[0].is_whole or lines[0].slot != devices[-1].slot:
        return False
    last = lines[0]
    alike = [device for device in devices[:-1] if (device.vendor, device.device) == (last.vendor, last.device)]
    return last.has_revision or any(not device.has_revision for device in alike)


def is_perftest(text: str) -> bool:
    """Return True for a report of perftest."""
    return bool(perftest_report.read(text[:1_000_000]))


def read_perftest(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of perftest: the worst report at its largest size. Server and client of one test may both be there."""
    reports = perftest_report.read(captured.text)
    if error := re.search(
        r"^[ \t]*(?P<what>(?:Couldn't|Failed|Unable|Completion with error|Problems)[^\n]*)", captured.text, re.MULTILINE
    ):
        return failed(PERFTEST, FailureClass.RUNTIME, error["what"][:200], _bandwidth_figures(reports[0]))
    readings = [_of_report(report, site) for report in reports]
    order = {"fail": 0, "inconclusive": 1}
    return min(readings, key=lambda reading: order.get(reading.verdict.value, 2))


def _bandwidth_figures(report: PerftestReport) -> dict[str, Any]:
    figures: dict[str, Any] = {"test": report.test, "device": report.device, "link_type": report.link_type}
    largest = report.largest
    if largest is None:
        return figures
    figures["bytes"] = largest.size
    if report.is_latency:
        return figures | {"latency_us": largest.average}
    gbit = report.gbit(largest)
    figures |= {"bw_unit": report.unit, "bw_gbps_approx": None if gbit is None else round(gbit, 1)}
    name = "bw_average_MBps" if report.unit == "MB/sec" else "bw_average"
    return figures | {name: largest.average}


def _of_report(report: PerftestReport, site: SiteValues) -> ToolReading:
    figures = _bandwidth_figures(report)
    largest = report.largest
    if largest is None or not report.is_whole:
        return undecided(PERFTEST, "the table has no row, or its end is missing", figures, expected="a whole report")
    if site.largest_bytes is not None and largest.size < site.largest_bytes:
        return undecided(PERFTEST, f"the largest size is {largest.size} bytes", figures, expected=f"{site.largest_bytes} bytes")
    value = largest.average if report.is_latency else report.gbit(largest)
    limit = site.latency_ceiling_us if report.is_latency else site.bw_floor_gbit
    name, unit = ("latency_ceiling_us", "us") if report.is_latency else ("bw_floor_gbit", "Gbit/s")
    if value is not None and value <= 0:
        return undecided(PERFTEST, f"{value:g} {unit} is no measurement", figures)
    if value is None:
        return undecided(PERFTEST, "the unit of the bandwidth is unknown", figures)
    if limit is None:
        return undecided(PERFTEST, f"{value:.1f} {unit}, and no limit is stated", figures, next_step=f"state it: --expect {name}=N")
    if value > limit if report.is_latency else value < limit:
        side = "above the ceiling" if report.is_latency else "below the floor"
        cause = f"{value:.1f} {unit} at {largest.size} bytes, {side} of {limit:g} {unit}"
        return failed(
            PERFTEST, FailureClass.PERFORMANCE, cause, figures, next_step="compare both ends: rate, PCIe width, MTU, GPUDirect"
        )
    return passed(PERFTEST, figures, f"{value:.1f} {unit} at {largest.size} bytes, limit {limit:g} {unit}")
