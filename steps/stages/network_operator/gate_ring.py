"""Judges the bandwidth check: every rail of a node must be fast in both directions with every partner.

Each pod sends to two others of a ring and receives from two. If one pair is slow on a rail, the other pairs of its two nodes tell
whose side is at fault: a node is cleared only if it is fast with another partner in that direction while the other is with nobody.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from msgspec import Struct

from steps.contract.measurements import Measurement
from steps.contract.objects.checks import CheckPod
from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.network_operator import gate_secondary_networks
from steps.stages.network_operator import reader_ring_reports as fields
from steps.stages.network_operator.contract import FunctionalExpectation, FunctionalObservation
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown

MOST_NAMED = 4
"""Slow directions or ports that a sentence names."""


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


class RingReports(Struct, frozen=True, kw_only=True):
    """The reports of all pods, ordered for the judgement of single nodes.

    `pending` are pods without a node. `sent` and `received` are directions by (node, rail). `names` are the device names that
    most nodes have. `fabric` are addresses and MTUs. `silent` are nodes without a report, `slow` the directions below the floor.
    `expected` are the rails of each node that must be fast, as rail → device; `rails` counts the nodes that have each rail.
    """

    pods: Mapping[str, CheckPod]
    pending: tuple[CheckPod, ...]
    sent: Mapping[tuple[str, str], list[Direction]]
    received: Mapping[tuple[str, str], list[Direction]]
    slow: list[Direction]
    names: tuple[str, ...]
    fabric: gate_secondary_networks.FabricAddresses
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
    slow: list[Direction] = []
    for pod in pods.values():
        for direction in _directions(pod, nodes, want):
            sent[direction.source, direction.rail].append(direction)
            received[direction.target, direction.rail].append(direction)
            if not direction.good:
                slow.append(direction)
    common = Counter(tuple(sorted(map(fields.device, fields.rails(pod)))) for pod in pods.values() if pod.report)
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
        fabric=gate_secondary_networks.read(seen, pods.values(), want, silent),
        silent=silent,
        expected=expected,
        rails=rails,
    )


def _directions(pod: CheckPod, nodes: Mapping[int, str], want: FunctionalExpectation) -> Iterator[Direction]:
    rounds = [pod.report, *fields.objects(pod.report.get("further"))]
    for measured in rounds:
        peer = measured.get("peer", -1)
        target = nodes.get(peer, "") if isinstance(peer, int) else ""
        for rail in fields.objects(measured.get("rails")) if target and target != pod.node else ():
            device, gbit, error = fields.device(rail), fields.gbit(rail), rail.get("error")
            if not want.names or device in want.names:
                good = gbit > 0 and gbit >= want.floor
                number = fields.number(rail)
                yield Direction(pod.node, target, number, device, gbit, good, str(error)[:200] if error else "")


# ---- nodes -------------------------------------------------------------------------------------------------------------------


def _node(name: str, want: FunctionalExpectation, ring: RingReports, rails: tuple[float | None, ...]) -> NodeVerdict:
    """Return the verdict on one expected node, whose bandwidth of each rail is `rails`."""
    goal = f"{count(want.rails, 'rail')} at {want.floor:g} Gbit/s or more in both directions"
    pod = ring.pods.get(name)
    if pod is None or not pod.report:
        return gate_checks.silent(pod, ring.pending, goal).of_node(name)
    networks = gate_secondary_networks
    finding = networks.judge_attachment(pod, want, ring.fabric) or networks.judge_mtu(pod, want, ring.fabric)
    finding = finding or _ports(pod, want, ring) or networks.judge_rail_mtus(pod, want, ring.fabric)
    # what could not be read hides no failure
    finding = (
        finding
        or _numbers(pod, want, ring.expected[name])
        or _speed(name, want, ring, goal)
        or networks.unread(pod, want, ring.fabric)
    )
    slowest = min([speed for speed in rails if speed is not None], default=0.0)
    return node_verdict(name, finding, f"{count(want.rails, 'rail')}, the slowest {slowest:g} Gbit/s")


def _expected(pod: CheckPod, want: FunctionalExpectation) -> dict[str, str]:
    """Return the rails of a node that must be fast, as rail → device: those that the plan names, else every device."""
    rails = fields.wanted_rails(pod, want)
    return {fields.number(rail): fields.device(rail) for rail in rails}


def _numbers(pod: CheckPod, want: FunctionalExpectation, expected: Mapping[str, str]) -> Finding | None:
    """Return a finding if two devices of a node have one rail number: what one measured would stand for the other."""
    rails, by_number = fields.wanted_rails(pod, want), dict[str, str]()
    for rail in rails if len(rails) > len(expected) else ():
        first = by_number.setdefault(fields.number(rail), fields.device(rail))
        if first != fields.device(rail):
            seen = f"{first} and {fields.device(rail)} both report rail {fields.number(rail)}"
            step = "name the rails in fabric.rails, in the order of the GPUs beside them, and run the check again"
            return unknown(FailureClass.RUNTIME, seen, "a number of its own for each rail", step)
    return None


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
    rails = fields.wanted_rails(pod, want)
    down = [f"{fields.device(rail)} {rail.get('state')}" for rail in rails if rail.get("state") != "ACTIVE"]
    active = len(rails) - len(down)
    if active >= want.rails and not down:
        return None
    excluded = {
        fields.device(device): str(device.get("link") or "no link layer") for device in fields.objects(pod.report.get("excluded"))
    }
    missing = [name for name in want.names or ring.names if name not in {fields.device(rail) for rail in rails}]
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
