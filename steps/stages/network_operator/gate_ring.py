"""Judges the bandwidth check: every rail of a node must be fast in both directions with every partner.

Each pod sends to two others of a ring and receives from two. If one pair is slow on a rail, the other pairs of its two nodes tell
whose side is at fault: a node is cleared only if it is fast with another partner in that direction while the other is with nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.contract.measurements import Measurement
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.network_operator.contract import NETWORK_STATUS, FunctionalExpectation, FunctionalObservation
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

MOST_NAMED = 4
"""Slow directions, ports or addresses that a sentence names."""


class Direction(Struct, frozen=True):
    """A measured direction of one rail: from the device of one node to a partner, in Gbit/s. `rail` is equal on both ends.

    `good`: it reaches the floor.
    """

    source: str
    target: str
    rail: str
    device: str
    gbit: float
    good: bool
    error: str = ""


class Attached(Struct, frozen=True):
    """A network of a pod in the annotation that Multus writes. `default` is True for the network that all pods have."""

    name: str = ""
    interface: str = ""
    ips: tuple[str, ...] = ()
    default: bool = False


class RingReports(Struct, frozen=True, kw_only=True):
    """The reports of all pods, ordered for the judgement of single nodes.

    `pending` are pods without a node. `sent` and `received` are directions by (node, rail). `names` are the device names that
    most nodes have. `owners` maps each secondary address and GID to the nodes whose pods have it. `mtus` maps each interface of
    secondary networks to its usual MTU. `silent` are nodes without a report. `slow` are the directions below the floor.
    `expected` are the rails of each node that must be fast, as rail → device; `rails` counts the nodes that have each rail.
    """

    pods: Mapping[str, CheckPod]
    pending: tuple[CheckPod, ...]
    sent: Mapping[tuple[str, str], list[Direction]]
    received: Mapping[tuple[str, str], list[Direction]]
    slow: list[Direction]
    names: tuple[str, ...]
    owners: Mapping[str, list[str]]
    mtus: Mapping[str, int]
    silent: tuple[str, ...]
    expected: Mapping[str, Mapping[str, str]]
    rails: Mapping[str, int]


def judge_ring(seen: FunctionalObservation, want: FunctionalExpectation) -> tuple[list[NodeVerdict], Measurement]:
    """Return the verdict on each expected node, and the bandwidth of each rail.

    Nodes with most slow directions, which are the likeliest cause, come first.
    """
    ring = _read(seen, want)
    measured = _bandwidths(want, ring)
    rows = [_node(name, want, ring, measured.values.get(name, ())) for name in want.nodes]
    slow = Counter(node for direction in ring.slow for node in (direction.source, direction.target))
    # a node whose pod left no report says why its partners could not measure
    silent = frozenset(ring.silent)
    rows.sort(key=lambda row: (1 if row.status is Status.PASS else -slow[row.node], row.node not in silent))
    return rows, measured


def _bandwidths(want: FunctionalExpectation, ring: RingReports) -> Measurement:
    """Return each rail's bandwidth: of its slower direction, with the partner that was faster in it.

    So a slow partner does not make a healthy node look slow, as long as another partner was measured.
    """
    devices = {rail: device for rails in ring.expected.values() for rail, device in rails.items()}
    rails = sorted(devices, key=lambda rail: (not rail.isdigit(), int(rail) if rail.isdigit() else 0, rail))
    fastest = ({place: max([way.gbit for way in ways]) for place, ways in side.items()} for side in (ring.sent, ring.received))
    sent, received = fastest
    values: dict[str, tuple[float | None, ...]] = {}
    for name in want.nodes if rails else ():
        places = [(name, rail) for rail in rails]
        both = [(sent.get(place), received.get(place)) for place in places]
        values[name] = tuple([out if back is None else back if out is None else min(out, back) for out, back in both])
    return Measurement(
        quantity="RDMA bandwidth of each rail, in its slower direction",
        unit="Gbit/s",
        floor=want.floor or None,
        columns=tuple([devices[rail] for rail in rails]),
        values=values,
    )


# ---- reports -----------------------------------------------------------------------------------------------------------------


def _read(seen: FunctionalObservation, want: FunctionalExpectation) -> RingReports:
    pods = gate_checks.by_node(seen.pods)
    # a partner without a report was not there to receive: what was sent to it proves nothing about the sender
    nodes = {pod.index: pod.node for pod in pods.values() if pod.report}
    sent, received = defaultdict[tuple[str, str], list[Direction]](list), defaultdict[tuple[str, str], list[Direction]](list)
    owners = defaultdict[str, list[str]](list)
    slow: list[Direction] = []
    for pod in pods.values():
        for direction in _directions(pod, nodes, want):
            sent[direction.source, direction.rail].append(direction)
            received[direction.target, direction.rail].append(direction)
            if not direction.good:
                slow.append(direction)
        for address in (*_secondary_addresses(pod), *_gids(pod)) if pod.report else ():
            owners[address].append(pod.node)
    common = Counter(tuple(sorted(map(_device, _rails(pod)))) for pod in pods.values() if pod.report)
    # of sets that equally many nodes have, the larger one: a node may lack a device, and has none too many
    names = max(common, key=lambda devices: (common[devices], len(devices)), default=())
    reporting = frozenset(nodes.values())
    silent = tuple(name for name in want.nodes if name not in reporting)
    expected = {name: _expected(pod, want) for name, pod in pods.items()}
    rails = Counter(rail for rails_of_node in expected.values() for rail in rails_of_node)
    pending = gate_checks.unplaced(seen.pods)
    return RingReports(
        pods=pods,
        pending=pending,
        sent=sent,
        received=received,
        slow=slow,
        names=names,
        owners=owners,
        mtus=_usual_mtus(pods.values(), want) if not want.mtu else {},
        silent=silent,
        expected=expected,
        rails=rails,
    )


def _directions(pod: CheckPod, nodes: Mapping[int, str], want: FunctionalExpectation) -> Iterator[Direction]:
    rounds = [pod.report, *_objects(pod.report.get("further"))]
    for measured in rounds:
        peer = measured.get("peer", -1)
        target = nodes.get(peer, "") if isinstance(peer, int) else ""
        for rail in _objects(measured.get("rails")) if target and target != pod.node else ():
            device, gbit, error = _device(rail), _gbit(rail), rail.get("error")
            if not want.names or device in want.names:
                good = gbit > 0 and gbit >= want.floor
                number = str(rail.get("rail", device))
                yield Direction(pod.node, target, number, device, gbit, good, str(error)[:200] if error else "")


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _rails(pod: CheckPod) -> list[Mapping[str, Any]]:
    return _objects(pod.report.get("rails"))


def _device(rail: Mapping[str, Any]) -> str:
    return str(rail.get("device", ""))


def _gbit(rail: Mapping[str, Any]) -> float:
    value = rail.get("gbit", 0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _attachments(pod: CheckPod) -> tuple[Attached, ...] | None:
    """Return the networks that Multus lists for a pod; None without a readable annotation."""
    text = pod.annotations.get(NETWORK_STATUS, "")
    try:
        return msgspec.json.decode(text.encode(), type=tuple[Attached, ...]) if text else None
    except msgspec.MsgspecError:
        return None


def _secondary_addresses(pod: CheckPod) -> list[str]:
    attached = (entry for entry in _attachments(pod) or () if not entry.default)
    return list(dict.fromkeys(address for entry in attached for address in entry.ips))


def _gids(pod: CheckPod) -> list[str]:
    """Return rail and GID of each port that reports one. Rails may be networks of their own, which use the same addresses."""
    named = ((rail.get("rail", _device(rail)), rail.get("gid")) for rail in _rails(pod))
    return list(dict.fromkeys(f"{gid} (rail {rail})" for rail, gid in named if gid))


# ---- nodes -------------------------------------------------------------------------------------------------------------------


def _node(name: str, want: FunctionalExpectation, ring: RingReports, rails: tuple[float | None, ...]) -> NodeVerdict:
    """Return the verdict on one expected node, whose bandwidth of each rail is `rails`."""
    goal = f"{count(want.rails, 'rail')} at {want.floor:g} Gbit/s or more in both directions"
    pod = ring.pods.get(name)
    if pod is None or not pod.report:
        return gate_checks.silent(pod, ring.pending, goal).of_node(name)
    finding = _attachment(pod, want, ring) or _mtu(pod, want, ring) or _ports(pod, want, ring) or _speed(name, want, ring, goal)
    slowest = min([speed for speed in rails if speed is not None], default=0.0)
    return node_verdict(name, finding, f"{count(want.rails, 'rail')}, the slowest {slowest:g} Gbit/s")


def _expected(pod: CheckPod, want: FunctionalExpectation) -> dict[str, str]:
    """Return the rails of a node that must be fast, as rail → device: those that the plan names, else every device."""
    rails = [rail for rail in _rails(pod) if not want.names or _device(rail) in want.names]
    return {str(rail.get("rail", _device(rail))): _device(rail) for rail in rails}


def _speed(name: str, want: FunctionalExpectation, ring: RingReports, goal: str) -> Finding | None:
    slow: list[Direction] = []
    unmeasured: list[str] = []
    usual = min(want.partners, len(want.nodes) - 1)
    for rail, device in ring.expected[name].items():
        # a partner without a report, or without this rail, is no reason to doubt this node: its own row says what is wrong
        least = usual - (len(want.nodes) - ring.rails[rail])
        for verb, directions in (("sends", ring.sent.get((name, rail), [])), ("receives", ring.received.get((name, rail), []))):
            if not directions or len(directions) < least:
                unmeasured.append(f"what {device} {verb}")
            slow += [direction for direction in directions if not direction.good and _is_blamed(name, direction, ring)]
    if slow:
        return _slow(name, slow, goal, unnamed=not want.names and len(ring.expected[name]) > want.rails)
    if unmeasured:
        away = f": no report of {', '.join(ring.silent[:MOST_NAMED])}" if ring.silent else ""
        seen = f"{', '.join(unmeasured[:MOST_NAMED])} was measured with too few partners{away}"
        return unknown(FailureClass.RUNTIME, seen, goal, "see why the pods of its partners did not run")
    return None


def _is_blamed(name: str, slow: Direction, ring: RingReports) -> bool:
    """Return False only if a slow direction is evidently the partner's fault: slow with all, and this node fast with another."""
    sent = [other for other in ring.sent[slow.source, slow.rail] if other is not slow]
    received = [other for other in ring.received[slow.target, slow.rail] if other is not slow]
    own, partners = (sent, received) if name == slow.source else (received, sent)
    return not (any(other.good for other in own) and partners and not any(other.good for other in partners))


def _slow(name: str, slow: list[Direction], goal: str, *, unnamed: bool) -> Finding:
    """Return the failure of a node with slow directions; `unnamed`: it has more devices than rails, and the plan names none."""

    def words(direction: Direction) -> str:
        way = f"to {direction.target}" if direction.source == name else f"from {direction.source}"
        return f"{direction.device} {way} {direction.gbit:g} Gbit/s {direction.error}".rstrip()

    slow = sorted(slow, key=lambda direction: direction.gbit)
    more = f" and {len(slow) - MOST_NAMED} more" if len(slow) > MOST_NAMED else ""
    seen = f"{count(len(slow), 'direction')} below the floor: {'; '.join(map(words, slow[:MOST_NAMED]))}{more}"
    step = "ibstat and cable of the rail; PCIe width (lspci -vv); a partner that fails by the same pair alone may be the cause"
    if unnamed:
        step += "; a device that is no rail of the fabric: name the rails in fabric.rails"
    return fail(FailureClass.PERFORMANCE if slow[-1].gbit > 0 else FailureClass.RUNTIME, seen, goal, step)


def _ports(pod: CheckPod, want: FunctionalExpectation, ring: RingReports) -> Finding | None:
    """Return a failure if rails of a node are missing, have another link layer, or are not active.

    A shared RDMA resource advertises the same number with one NIC as with eight, so the ports are counted.
    """
    rails = [rail for rail in _rails(pod) if not want.names or _device(rail) in want.names]
    down = [f"{_device(rail)} {rail.get('state')}" for rail in rails if rail.get("state") != "ACTIVE"]
    active = len(rails) - len(down)
    if active >= want.rails and not down:
        return None
    excluded = {_device(device): str(device.get("link") or "no link layer") for device in _objects(pod.report.get("excluded"))}
    missing = [name for name in want.names or ring.names if name not in {_device(rail) for rail in rails}]
    kind = want.link or "the fabric's kind"
    states = [*down, *(f"{name} has link layer {link}, not {kind}" for name, link in excluded.items())]
    if not excluded and len(rails) < want.rails:
        states += [f"{name} is not there, or its link layer is {_other(want.link)}" for name in missing]
    error = str(pod.report.get("error") or "")
    seen = f"{active} active RDMA ports of {len(rails)} seen; {', '.join(states[:MOST_NAMED])} {error}".rstrip("; ")
    step = "ibstat on the node: cable, switch port, subnet manager"
    if excluded or missing:
        step = (
            f"mlxconfig -d DEVICE query LINK_TYPE_P1: the port must be of type {'IB' if want.link != 'Ethernet' else 'ETH'}; {step}"
        )
    return fail(FailureClass.HARDWARE, seen, f"{want.rails} active ports", step)


def _other(link: str) -> str:
    return "InfiniBand" if link == "Ethernet" else "Ethernet"


# ---- secondary networks ------------------------------------------------------------------------------------------------------


def _attachment(pod: CheckPod, want: FunctionalExpectation, ring: RingReports) -> Finding | None:
    """Return a failure unless Multus' status lists each wanted network with an interface and an address of this pod's own."""
    entries = _attachments(pod) or ()
    for network in want.networks:
        attached = next((entry for entry in entries if entry.name in (network, network.rpartition("/")[2])), None)
        if attached is None or not attached.interface or not attached.ips:
            state = "not in network-status"
            if attached is not None:
                state = f"interface {attached.interface or 'none'}, ips {', '.join(attached.ips) or 'none'}"
            step = "log of Multus and of nv-ipam-node on this node"
            return fail(FailureClass.RUNTIME, f"network {network}: {state}", "an interface with an address", step)
    for address in _secondary_addresses(pod):
        if others := _other_owners(address, pod, ring):
            step = "see fabric.ip_pool: blocks of nv-ipam must not overlap, nor a second IPAM hand out the same range"
            return _shared(f"address {address} is also that of a pod on {others}", step, ring)
    for gid in _gids(pod):
        if others := _other_owners(gid, pod, ring):
            step = "give each machine an address of its own in the fabric (RoCE), or correct the port GUID in its NIC's firmware"
            return _shared(f"GID {gid} is also that of a port of {others}", step, ring)
    return None


def _other_owners(address: str, pod: CheckPod, ring: RingReports) -> str:
    """Return the first other nodes that have an address or GID of a pod, for a sentence; empty if there are none."""
    return ", ".join([node for node in ring.owners.get(address, ()) if node != pod.node][:MOST_NAMED])


def _shared(seen: str, step: str, ring: RingReports) -> Finding:
    # addresses of pods that are still to come may show which side is wrong
    make = unknown if ring.silent else fail
    return make(FailureClass.RUNTIME, seen, "an address of its own", step)


def _usual_mtus(pods: Iterable[CheckPod], want: FunctionalExpectation) -> dict[str, int]:
    """Return each interface of the wanted networks with the MTU that it has in most pods."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for pod in pods:
        for _, interface, mtu in _interfaces(pod, want):
            if isinstance(mtu, int):
                counts[interface][mtu] += 1
    return {interface: max(seen, key=lambda mtu: (seen[mtu], mtu)) for interface, seen in counts.items()}


def _interfaces(pod: CheckPod, want: FunctionalExpectation) -> Iterator[tuple[str, str, object]]:
    """Yield network, interface and MTU of each wanted network of a pod that has reported; the MTU is None if it reported none."""
    mtus = {str(entry.get("name")): entry.get("mtu") for entry in _objects(pod.report.get("interfaces"))}
    names = {network.rpartition("/")[2] for network in want.networks}
    for attached in (_attachments(pod) or ()) if pod.report and names else ():
        if attached.name.rpartition("/")[2] in names:
            yield attached.name, attached.interface, mtus.get(attached.interface)


def _mtu(pod: CheckPod, want: FunctionalExpectation, ring: RingReports) -> Finding | None:
    """Return a finding unless every secondary interface in the pod has the wanted MTU, or without one that of most pods."""
    for network, interface, mtu in _interfaces(pod, want):
        wanted = want.mtu or ring.mtus.get(interface)
        if mtu is None:
            seen = f"interface {interface} of network {network} is not in the pod's report"
            expected = f"MTU {wanted}" if wanted else "its MTU"
            return unknown(FailureClass.RUNTIME, seen, expected, "read the log of the check's pod")
        if mtu != wanted:
            step = (
                "see mtu of the network's attachment definition or SriovNetworkNodePolicy, and the MTU of its master interface on "
                "the node"
            )
            expected = f"{wanted}" if want.mtu else f"{wanted} as in most pods"
            return fail(FailureClass.COMPARISON, f"interface {interface} has MTU {mtu} in the pod", expected, step)
    return None
