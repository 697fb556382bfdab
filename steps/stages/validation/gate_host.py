"""Judges the host facts of a node under load: counts, memory, PCIe, NVLink, clocks, kernel log; and firmware of a fleet.

Rules and sources: `steps/docs/facts/acceptance.md`, host facts. What nvidia-smi did not show is never taken for health. A kernel
log that the pod cannot read is not judged, and a note of the gate says so: a node may pass with Xids there.
"""

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from steps.contract.measurements import Versions, versions
from steps.contract.node_tests.fleet_facts import FleetFact
from steps.contract.node_tests.node_health import GpuGroup, GpuState, HostWant, NodeFacts
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, Status
from steps.stages.shared import gate_alike
from steps.stages.shared.finding import Finding, fail, unknown

LOADED = ("P0", "P1")
"""Performance states of a GPU under load; in lower ones its PCIe link and clocks are slow by design."""
SLOWDOWNS: Mapping[str, tuple[str, str]] = {
    "hw power brake slowdown": ("HW power brake slowdown", "check power supplies and the power limit of rack and node"),
    "hw thermal slowdown": ("HW thermal slowdown", "check fans, air flow and coolant"),
    "hw slowdown": ("HW slowdown", "check power and cooling of the node"),
    "sw thermal slowdown": ("SW thermal slowdown", "check fans, air flow and coolant"),
}
"""Clock event reasons that no load excuses, the most specific first. The software power cap is normal under load."""
MOST_CAUSES = 2
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,3})?")
_HARDWARE, _RUNTIME = FailureClass.HARDWARE, FailureClass.RUNTIME
_RESET = "drain the node and reset the GPU; if it comes back, the GPU is for the vendor"
_READ = "read nvidia-smi -q in the check's log; a driver that does not show it cannot prove it"


class StateProblem(NamedTuple):
    """A problem of GPUs in one state: `cause` is a sentence's beginning that `on GPU 3` ends."""

    status: Status
    failure_class: FailureClass
    cause: str
    expected: str
    next_step: str


def problem(facts: NodeFacts | None, want: HostWant, gpus: int) -> Finding | None:
    """Return the first problem of a node with its GPUs, and the causes of the next one; None if there is none."""
    if facts is None:
        return unknown(_RUNTIME, "nvidia-smi -q shows no GPU", "host facts of every GPU", "read the log of the check pod")
    found_gpus = sum(len(group.gpus) for group in facts.groups)
    if not gpus == found_gpus == facts.attached:
        return fail(
            _HARDWARE,
            f"nvidia-smi shows {found_gpus} of {facts.attached if facts.attached is not None else 'unknown'} GPUs",
            count(gpus, "GPU"),
            "compare with lspci and the kernel log (Xid 79: fallen off the bus)",
        )
    findings = [*_of_groups(facts, want), *_of_log(facts)]
    if not facts.driver:
        findings.append(unknown(FailureClass.HEALTH, "the driver version cannot be read", "a driver version", _READ))
    if not findings:
        return None
    first, *others = sorted(findings, key=lambda finding: finding.status is not Status.FAIL)
    more = "".join(f"; {other.seen}" for other in others[: MOST_CAUSES - 1])
    more += f"; and {len(others) - MOST_CAUSES + 1} more" if len(others) >= MOST_CAUSES else ""
    return Finding(
        status=first.status,
        seen=first.seen + more,
        expected=first.expected,
        next_step=first.next_step,
        failure_class=first.failure_class,
    )


def _of_groups(facts: NodeFacts, want: HostWant) -> Iterator[Finding]:
    for group in facts.groups:
        for bad in _problems(group.state, want):
            yield Finding(
                status=bad.status,
                seen=f"{bad.cause} on {_named(group, facts)}",
                expected=bad.expected,
                next_step=bad.next_step,
                failure_class=bad.failure_class,
            )


def _named(group: GpuGroup, facts: NodeFacts) -> str:
    if len(group.gpus) == len(facts.bus_ids) > 1:
        return f"all {len(group.gpus)} GPUs"
    return ", ".join(
        f"GPU {gpu} ({facts.bus_ids[gpu]})" if gpu < len(facts.bus_ids) and len(group.gpus) < 3 else f"GPU {gpu}"
        for gpu in group.gpus
    )


@functools.lru_cache(maxsize=1024)
def _problems(state: GpuState, want: HostWant) -> tuple[StateProblem, ...]:
    """Return the problems of a state, worst first. GPUs of a fleet are in few states, so each is judged once."""
    return (*_stated(state), *_memory(state), *_pcie(state, want), *_links(state, want), *_clocks(state), *_identity(state, want))


def _bad(failure_class: FailureClass, cause: str, expected: str, next_step: str) -> StateProblem:
    return StateProblem(Status.FAIL, failure_class, cause, expected, next_step)


def _unread(what: str) -> StateProblem:
    return StateProblem(Status.INCONCLUSIVE, FailureClass.HEALTH, f"{what} cannot be read", f"a value of {what}", _READ)


def _stated(state: GpuState) -> Iterator[StateProblem]:
    """Yield what the GPU itself says to be wrong with it; values that hold an error come first, since they hide all others."""
    if state.lost:
        yield _bad(_HARDWARE, f"an error in place of a value ({state.lost[0]})", "readable values", _RESET)
    for fault in state.faults:
        is_fabric = fault.startswith(("fabric", "health"))
        step = "see that the fabric manager runs, and read its log" if is_fabric else _RESET
        yield _bad(FailureClass.DEPENDENCY if is_fabric else _HARDWARE, fault, "no fault that the GPU reports", step)


def _memory(state: GpuState) -> Iterator[StateProblem]:
    if state.remap_failure:
        yield _bad(_HARDWARE, "row remapping failed", "no failed remapping", "replace this GPU")
    if state.remap_pending:
        yield _bad(_HARDWARE, "remapped rows are pending, which only a reset brings into force", "no pending rows", _RESET)
    if state.uncorrectable:
        yield _bad(_HARDWARE, count(state.uncorrectable, "uncorrectable ECC error"), "0 uncorrectable errors", _RESET)
    if state.ecc is False:
        yield _bad(FailureClass.INPUT, "ECC is off", "ECC on", "nvidia-smi -e 1 and a reset: without ECC wrong data is not told")
    fields = {
        "remapped rows": None if state.remap_failure is None or state.remap_pending is None else True,
        "the ECC mode": state.ecc,
        "the counters of ECC errors": None if state.uncorrectable is None or state.lifetime is None else True,
    }
    yield from (_unread(what) for what, value in fields.items() if value is None)


def _pcie(state: GpuState, want: HostWant) -> Iterator[StateProblem]:
    if state.pcie_width is None or state.pcie_generation is None:
        yield _unread("the PCIe link")
        return
    if state.pcie_width < want.pcie_width:
        seat = "reseat the GPU or its riser, and check the slot (lspci -vv, LnkSta)"
        yield _bad(_HARDWARE, f"PCIe link has {state.pcie_width} lanes", f"{want.pcie_width} lanes", seat)
    if state.pcie_generation >= want.pcie_generation:
        return
    seen, expected = f"PCIe link runs at generation {state.pcie_generation}", f"generation {want.pcie_generation}"
    if state.performance in LOADED:
        step = "check BIOS settings, riser and slot; a slot of an older generation: write accelerator.pcie_generation"
        yield _bad(_HARDWARE, seen, expected, step)
    else:
        # an idle GPU lowers its link, so this says nothing about the link under load
        rest = f"{seen} in performance state {state.performance or 'unknown'}, read at rest"
        step = "see in the check's log why dcgmproftester did not load the GPUs"
        yield StateProblem(Status.INCONCLUSIVE, FailureClass.HEALTH, rest, f"{expected}, read under load (P0)", step)


def _links(state: GpuState, want: HostWant) -> Iterator[StateProblem]:
    # NVLink is of no use to MIG instances, and links may then be down
    if not want.links or state.mig:
        return
    if state.links is None or state.links_down is None:
        yield _unread("the state of NVLinks")
    elif state.links != want.links:
        down = f", {state.links_down} down" if state.links_down else ""
        step = "read nvidia-smi nvlink -e and the log of the fabric manager"
        yield _bad(_HARDWARE, f"{state.links} NVLinks up{down}", f"{want.links} NVLinks up", step)


def _clocks(state: GpuState) -> Iterator[StateProblem]:
    if state.throttle is None:
        yield _unread("the reasons of slow clocks")
        return
    for reason, (words, step) in SLOWDOWNS.items():
        if reason in state.throttle:
            yield _bad(_HARDWARE, f"{words} is active", "full clocks under load", step)
            return


def _identity(state: GpuState, want: HostWant) -> Iterator[StateProblem]:
    if state.product != want.product:
        step = "correct accelerator.product or accelerator.product_label: unknown GPUs are judged by no table"
        yield _bad(FailureClass.COMPARISON, f"product is {state.product or 'unknown'}", want.product, step)
    if not state.vbios:
        yield _unread("the VBIOS version")


def _of_log(facts: NodeFacts) -> Iterator[Finding]:
    """Yield a finding for each Xid and fatal SXid of the kernel log; a log that cannot be read is reported in the gate's notes."""
    for xid in facts.xids or ():
        index = next((at for at, bus in enumerate(facts.bus_ids) if _same_bus(bus, xid.bus_id)), None)
        place = f"GPU {index} ({facts.bus_ids[index]})" if index is not None else f"the GPU at {xid.bus_id}"
        cause = f"Xid {xid.number}: {xid.text}".rstrip(": ") if xid.number else "fallen off the bus"
        times = f" ({xid.times} times)" if xid.times > 1 else ""
        step = f"{_RESET}; https://docs.nvidia.com/deploy/xid-errors/ says what the number means; a reboot empties the kernel log"
        yield fail(_HARDWARE, f"{cause}{times} on {place}", "no Xid of the hardware since the node booted", step)
    for event in facts.switches:
        times = f" ({event.times} times)" if event.times > 1 else ""
        cause = f"fatal SXid {event.number}: {event.text}".rstrip(": ")
        step = "drain the node and reboot it, which resets GPUs and switches; if it comes back, the baseboard is for the vendor"
        yield fail(_HARDWARE, f"{cause}{times} on the NVSwitch at {event.bus_id}", "no fatal SXid since the node booted", step)


def _same_bus(first: str, second: str) -> bool:
    """Return True for the same PCI address, which nvidia-smi and the kernel write with domains of different lengths."""
    ends = [bus.lower().partition(".")[0].rsplit(":", 2)[-2:] for bus in (first, second)]
    return ends[0] == ends[1]


# ---- the fleet -----------------------------------------------------------------------------------------------------------------


class FleetComparison(Struct, frozen=True):
    """Findings on nodes whose driver or firmware is not that of the others, notes on allowed differences, and what is in use."""

    findings: dict[str, Finding] = {}
    notes: tuple[str, ...] = ()
    in_use: Versions = {}


def compare(fleet: Mapping[str, NodeFacts], may_differ: Mapping[str, str]) -> FleetComparison:
    """Compare driver, VBIOS, power limit and firmware of RDMA devices over the nodes."""
    values = {
        FleetFact.DRIVER: {node: facts.driver for node, facts in fleet.items() if facts.driver},
        FleetFact.VBIOS: {node: text for node, facts in fleet.items() if (text := _vbios(facts.groups))},
        FleetFact.POWER_LIMIT: {node: text for node, facts in fleet.items() if (text := _power_limit(facts.groups))},
        FleetFact.NIC_FIRMWARE: {node: ", ".join(dict.fromkeys(facts.adapters)) for node, facts in fleet.items() if facts.adapters},
    }
    findings: dict[str, Finding] = {}
    notes = []
    for fact, by_node in values.items():
        comparison = gate_alike.compare(fact, by_node, may_differ)
        findings = comparison.findings | findings
        notes += [comparison.note] if comparison.note else []
    findings = _adapter_links(fleet) | findings
    shown = {gate_alike.LABELS[fact]: values[fact] for fact in (FleetFact.DRIVER, FleetFact.VBIOS)}
    return FleetComparison(findings, tuple(notes), versions(shown))


def _adapter_links(fleet: Mapping[str, NodeFacts]) -> dict[str, Finding]:
    """Return a finding for each node that lacks an adapter of most nodes, or whose PCIe link to one is not that of most nodes.

    Slots differ by design between the adapters of one machine, and between machines with other boards, so only equal adapters of
    nodes with the same kinds of boards are compared.
    """
    shown: dict[tuple[frozenset[str], str], Counter[str]] = {}
    boards = {node: frozenset(adapter.rpartition(" ")[0] for adapter in facts.adapters) for node, facts in fleet.items()}
    for node, facts in fleet.items():
        for device, link in facts.adapter_links.items():
            shown.setdefault((boards[node], device), Counter())[link] += 1
    usual = {alike: _usual_link(links) for alike, links in shown.items()}
    findings = _missing_adapters(fleet)
    for node, facts in fleet.items():
        odd = [device for device, link in facts.adapter_links.items() if link != usual[boards[node], device]]
        if odd and node not in findings:
            more = f", and {len(odd) - 1} more" if len(odd) > 1 else ""
            seen = f"PCIe link of {odd[0]} has {facts.adapter_links[odd[0]]}{more}"
            step = "reseat the adapter or its riser, and check the slot (lspci -vv, LnkSta)"
            findings[node] = fail(_HARDWARE, seen, _link_text(usual[boards[node], odd[0]], shown[boards[node], odd[0]]), step)
    return findings


def _missing_adapters(fleet: Mapping[str, NodeFacts]) -> dict[str, Finding]:
    """Return a finding for each node that lacks an adapter which most nodes have; nothing if no set of adapters is on most."""
    sets, known = Counter(frozenset(facts.adapter_links) for facts in fleet.values()), len(fleet)
    (usual, times), *others = sets.most_common() or [(frozenset[str](), 0)]
    findings: dict[str, Finding] = {}
    for node, facts in fleet.items() if others and times * 2 > known else ():
        if missing := sorted(usual - facts.adapter_links.keys()):
            seen = f"{missing[0]} is not there{f', and {len(missing) - 1} more' if len(missing) > 1 else ''}"
            step = "look for the adapter with lspci and in the kernel log, and for its driver and name in /sys/class/infiniband"
            findings[node] = fail(_HARDWARE, seen, f"{count(len(usual), 'RDMA adapter')} as on {times} of {known} nodes", step)
    return findings


def _usual_link(links: Counter[str]) -> str:
    """Return the PCIe link that an adapter has on most nodes; if none has a majority, the widest and fastest one.

    Half of the nodes with narrow links are no reason to believe that these are right.
    """
    common, times = links.most_common(1)[0]
    return common if times * 2 > links.total() else max(links, key=lambda link: [float(part) for part in _NUMBER.findall(link)])


def _link_text(link: str, links: Counter[str]) -> str:
    best = "" if links[link] * 2 > links.total() else ", the best link: none has a majority"
    return f"{link} as on {links[link]} of {links.total()} nodes{best}"


def _vbios(groups: Iterable[GpuGroup]) -> str:
    return ", ".join(sorted({group.state.vbios for group in groups if group.state.vbios}))


def _power_limit(groups: Iterable[GpuGroup]) -> str:
    limits = sorted({group.state.power_limit for group in groups if group.state.power_limit is not None})
    return ", ".join(f"{limit:g} W" for limit in limits)
