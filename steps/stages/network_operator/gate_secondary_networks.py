"""Judges the secondary networks of the bandwidth check's pods: attached, with an address of their own, and of the machine's MTU."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from steps.contract.objects.checks import CheckPod
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.stages.network_operator import reader_ring_reports as fields
from steps.stages.network_operator.contract import FunctionalExpectation, FunctionalObservation
from steps.stages.shared.finding import Finding, fail, unknown

MOST_NAMED = 4
"""Owners of an address that a sentence names."""
_MTU_STEP = (
    "see mtu of the network's attachment definition or SriovNetworkNodePolicy, and the MTU of its master interface on the node"
)
_PLANNED_STEP = "ip link show on the node; stage os_prep set fabric.mtu there: find what has changed the interface since"
_UNPLANNED_STEP = (
    "ip link show on the node; give all nodes one MTU: where the site configures their interfaces, or with fabric.driver: host by "
    "fabric.mtu, which stage os_prep sets on every interface of the fabric"
)


class FabricAddresses(Struct, frozen=True, kw_only=True):
    """Addresses and MTUs in the fabric, with their owners.

    `owners` maps each secondary address and GID to the nodes whose pods of the check have it, `ports` each IPv4 address of a RoCE
    port to its nodes, `holders` each address to others that have it too, as words. `surveyed`: pods beside those of the check were
    read. `mtus` maps each interface of secondary networks to its usual MTU, `rail_mtus` each rail to that of the machine's
    interface. `silent` are nodes without a report.
    """

    owners: Mapping[str, list[str]]
    ports: Mapping[str, list[str]]
    holders: Mapping[str, list[str]]
    surveyed: bool
    mtus: Mapping[str, int]
    rail_mtus: Mapping[str, int]
    silent: tuple[str, ...]


class SecondaryInterface(Struct, frozen=True):
    """An interface of a secondary network in a pod, and the machine's interface behind it. MTUs that were not reported are None."""

    network: str
    name: str
    mtu: int | None
    host: str
    host_mtu: int | None


def read(
    seen: FunctionalObservation, pods: Iterable[CheckPod], want: FunctionalExpectation, silent: tuple[str, ...]
) -> FabricAddresses:
    """Return who has which address and MTU, by the reports and annotations of the check's `pods` and the survey of all pods."""
    owners, ports = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    mtus, rail_mtus = defaultdict[str, Counter[int]](Counter), defaultdict[str, Counter[int]](Counter)
    for pod in pods:
        if not pod.report:
            continue
        for address in dict.fromkeys((*fields.secondary_addresses(fields.attachments(pod)), *fields.gids(pod))):
            owners[address].append(pod.node)
        for address in fields.port_addresses(pod):
            ports[address].append(pod.node)
        for interface in _interfaces(pod, want):
            if interface.mtu is not None:
                mtus[interface.name][interface.mtu] += 1
        for rail in fields.wanted_rails(pod, want):
            if (mtu := fields.bytes_of(rail.get("mtu"))) is not None:
                rail_mtus[fields.number(rail)][mtu] += 1
    holders = defaultdict[str, list[str]](list)
    for holder in seen.holders:
        for address in holder.addresses:
            holders[address].append(holder.text)
    return FabricAddresses(
        owners=owners,
        ports=ports,
        holders=holders,
        surveyed=seen.surveyed > 0,
        mtus=_usual(mtus),
        rail_mtus=_usual(rail_mtus),
        silent=silent,
    )


def _usual(counts: Mapping[str, Counter[int]]) -> dict[str, int]:
    # of MTUs that equally many have, the larger one: packets of its size are lost at the other
    return {name: max(seen, key=lambda mtu: (seen[mtu], mtu)) for name, seen in counts.items()}


# ---- addresses ---------------------------------------------------------------------------------------------------------------


def judge_attachment(pod: CheckPod, want: FunctionalExpectation, fabric: FabricAddresses) -> Finding | None:
    """Return a failure unless Multus' status lists each wanted network with an interface and an address of this pod's own."""
    entries = fields.attachments(pod) or ()
    for network in want.networks:
        attached = next((entry for entry in entries if entry.name in (network, network.rpartition("/")[2])), None)
        if attached is None or not attached.interface or not attached.ips:
            state = "not in network-status"
            if attached is not None:
                state = f"interface {attached.interface or 'none'}, ips {', '.join(attached.ips) or 'none'}"
            step = "log of Multus and of nv-ipam-node on this node"
            return fail(FailureClass.RUNTIME, f"network {network}: {state}", "an interface with an address", step)
    return _addresses(pod, fabric) or _gids(pod, fabric)


def _addresses(pod: CheckPod, fabric: FabricAddresses) -> Finding | None:
    """Return a failure if somebody else, or a second interface of this pod, has an address of the pod."""
    step = "see fabric.ip_pool: blocks of nv-ipam must not overlap, nor a second IPAM hand out the same range"
    for address, interfaces in Counter(fields.secondary_addresses(fields.attachments(pod))).items():
        if others := _elsewhere(fabric.owners, address, pod):
            return _shared(f"address {address} is also that of a pod on {others}", step, fabric)
        if others := ", ".join(fabric.holders.get(address, ())[:MOST_NAMED]):
            return _shared(f"address {address} is also that of {others}", step, fabric)
        # a port of this node may be the one that the pod was given
        if others := _elsewhere(fabric.ports, address, pod):
            step = "keep the machines' own addresses out of the subnet of fabric.ip_pool"
            return _shared(f"address {address} is also that of a fabric port of {others}", step, fabric)
        if interfaces > 1:
            return _shared(f"{interfaces} interfaces of the pod have the address {address}", step, fabric)
    return None


def _gids(pod: CheckPod, fabric: FabricAddresses) -> Finding | None:
    for gid in fields.gids(pod):
        if others := _elsewhere(fabric.owners, gid, pod):
            step = "give each machine an address of its own in the fabric (RoCE), or correct the port GUID in its NIC's firmware"
            return _shared(f"GID {gid} is also that of a port of {others}", step, fabric)
    return None


def _elsewhere(owners: Mapping[str, list[str]], address: str, pod: CheckPod) -> str:
    """Return the first other nodes that have an address or GID of a pod, for a sentence; empty if there are none."""
    return ", ".join([node for node in owners.get(address, ()) if node != pod.node][:MOST_NAMED])


def _shared(seen: str, step: str, fabric: FabricAddresses) -> Finding:
    # addresses of pods that are still to come may show which side is wrong
    make = unknown if fabric.silent else fail
    return make(FailureClass.RUNTIME, seen, "an address of its own", step)


# ---- MTU ---------------------------------------------------------------------------------------------------------------------


def judge_mtu(pod: CheckPod, want: FunctionalExpectation, fabric: FabricAddresses) -> Finding | None:
    """Return a finding unless each secondary interface has the planned MTU or that of most pods, and that of the machine."""
    return next(filter(None, (_interface(interface, want, fabric) for interface in _interfaces(pod, want))), None)


def judge_rail_mtus(pod: CheckPod, want: FunctionalExpectation, fabric: FabricAddresses) -> Finding | None:
    """Return a failure if the machine's interface of a rail has another MTU than planned, or than the rail has on most nodes."""
    for rail in fields.wanted_rails(pod, want):
        mtu, wanted = fields.bytes_of(rail.get("mtu")), _wanted(rail, want, fabric)
        if mtu is not None and mtu != wanted:
            seen = f"the machine's interface of {fields.device(rail)} has MTU {mtu}"
            expected = f"{wanted}" if want.rail_mtu else f"{wanted} as on most nodes"
            return fail(FailureClass.COMPARISON, seen, expected, _PLANNED_STEP if want.rail_mtu else _UNPLANNED_STEP)
    return None


def unread(pod: CheckPod, want: FunctionalExpectation, fabric: FabricAddresses) -> Finding | None:
    """Return what could not be compared: the MTU of a machine's interface, and addresses of other pods.

    InfiniBand needs no interface: if no node has one on a rail, and no MTU is planned, there is nothing to compare.
    """
    for interface in _interfaces(pod, want):
        if interface.host_mtu is None:
            seen = f"the report lacks the MTU of the machine's interface behind {interface.name}"
            return unknown(FailureClass.RUNTIME, seen, f"MTU {interface.mtu} as in the pod", "ip link show on the node")
    for rail in fields.wanted_rails(pod, want):
        wanted = _wanted(rail, want, fabric)
        if fields.bytes_of(rail.get("mtu")) is None and (wanted or want.link == "Ethernet"):
            seen = f"the report lacks the MTU of the machine's interface of {fields.device(rail)}"
            return unknown(FailureClass.RUNTIME, seen, f"MTU {wanted}" if wanted else "its MTU", "ip link show on the node")
    if want.networks and not fabric.surveyed:
        expected, step = "no other pod with an address of the check's", "wait until the check's pods have ended"
        return unknown(FailureClass.RUNTIME, "the addresses of other pods were not read", expected, step)
    return None


def notes(pods: Iterable[CheckPod], want: FunctionalExpectation) -> list[str]:
    """Return a line about unplanned MTUs in pods that are smaller than those of the machines' ports, which is slower and works."""
    if want.mtu or not want.larger_ports:
        return []
    smaller = {pod.node: interface for pod in pods for interface in _interfaces(pod, want) if _is_smaller(interface)}
    if not smaller:
        return []
    node = min(smaller)
    others = f" and {count(len(smaller) - 1, 'other node')}" if len(smaller) > 1 else ""
    return [f"{node}{others}: {_unlike(smaller[node])}; set fabric.mtu to give the networks of pods the MTU of the ports"]


def _is_smaller(interface: SecondaryInterface) -> bool:
    return interface.mtu is not None and interface.host_mtu is not None and interface.mtu < interface.host_mtu


def _unlike(interface: SecondaryInterface) -> str:
    mtu, host_mtu = interface.mtu, interface.host_mtu
    return f"interface {interface.name} has MTU {mtu} in the pod, and {interface.host} of the machine {host_mtu}"


def _wanted(rail: Mapping[str, object], want: FunctionalExpectation, fabric: FabricAddresses) -> int:
    return want.rail_mtu or fabric.rail_mtus.get(fields.number(rail), 0)


def _interfaces(pod: CheckPod, want: FunctionalExpectation) -> Iterator[SecondaryInterface]:
    """Yield the interface of each wanted network of a pod that has reported."""
    reported = {str(entry.get("name")): entry for entry in fields.objects(pod.report.get("interfaces"))}
    names = {network.rpartition("/")[2] for network in want.networks}
    for attached in (fields.attachments(pod) or ()) if pod.report and names else ():
        if attached.name.rpartition("/")[2] in names:
            entry = reported.get(attached.interface, {})
            mtu, host = fields.bytes_of(entry.get("mtu")), str(entry.get("host", ""))[:40]
            host_mtu = fields.bytes_of(entry.get("host_mtu")) if host else None
            yield SecondaryInterface(attached.name, attached.interface, mtu, host, host_mtu)


def _interface(interface: SecondaryInterface, want: FunctionalExpectation, fabric: FabricAddresses) -> Finding | None:
    name, mtu = interface.name, interface.mtu
    wanted = want.mtu or fabric.mtus.get(name)
    if mtu is None:
        seen = f"interface {name} of network {interface.network} is not in the pod's report"
        return unknown(FailureClass.RUNTIME, seen, f"MTU {wanted}" if wanted else "its MTU", "read the log of the check's pod")
    if want.mtu and mtu != want.mtu:
        return fail(FailureClass.COMPARISON, f"interface {name} has MTU {mtu} in the pod", f"{want.mtu}", _MTU_STEP)
    if interface.host_mtu is not None and mtu != interface.host_mtu and not (want.larger_ports and mtu < interface.host_mtu):
        expected = f"{mtu} or more on the machine" if want.larger_ports else "one MTU"
        return fail(FailureClass.COMPARISON, _unlike(interface), expected, _MTU_STEP)
    if mtu != wanted:
        return fail(FailureClass.COMPARISON, f"interface {name} has MTU {mtu} in the pod", f"{wanted} as in most pods", _MTU_STEP)
    return None
