"""Judges bandwidth in a ring: each pod measures to the next one, so each node is in two pairs, and a bad one spoils both."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.network_operator.contract import NETWORK_STATUS, FunctionalExpectation, FunctionalObservation
from steps.stages.shared import gate_checks
from steps.stages.shared.finding import Finding, fail, node_verdict, unknown


class Pair(Struct, frozen=True, kw_only=True):
    """A measured pair: `good` counts rails at or above the floor, `worst` is the slowest of the best `rails`, in Gbit/s."""

    source: str
    target: str
    good: int
    worst: float
    error: str = ""


class Attached(Struct, frozen=True):
    """A network of a pod in the annotation that Multus writes: its name, interface and addresses."""

    name: str = ""
    interface: str = ""
    ips: tuple[str, ...] = ()


def judge_ring(seen: FunctionalObservation, want: FunctionalExpectation) -> tuple[list[NodeVerdict], tuple[str, ...]]:
    """Return the verdict on each node, and notes on pairs that fail although both nodes pass with another neighbour."""
    pods = gate_checks.by_node(seen.pods)
    by_index = {pod.index: pod.node for pod in seen.pods if pod.node}
    pairs = [pair for pod in pods.values() if (pair := _pair(pod, by_index, want)) is not None]
    rows = [_node(name, pods.get(name), seen, want, pairs) for name in want.nodes]
    fine = {row.node for row in rows if row.status is Status.PASS}
    notes = (
        f"{pair.source} to {pair.target} reaches {pair.worst:g} Gbit/s, though both pass with another neighbour: check that path"
        for pair in pairs
        if pair.good < want.rails and {pair.source, pair.target} <= fine
    )
    return rows, tuple(notes)


def _rails(pod: CheckPod) -> list[Mapping[str, Any]]:
    rails = pod.report.get("rails", ())
    return [rail for rail in rails if isinstance(rail, dict)] if isinstance(rails, list) else []


def _gbit(rail: Mapping[str, Any]) -> float:
    value = rail.get("gbit", 0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _pair(pod: CheckPod, by_index: Mapping[int, str], want: FunctionalExpectation) -> Pair | None:
    peer = pod.report.get("peer", -1)
    target = by_index.get(peer, "") if isinstance(peer, int) else ""
    if not pod.report or not target:
        return None
    # a node may have more devices than rails, such as storage NICs
    speeds = sorted((_gbit(rail) for rail in _rails(pod)), reverse=True)[: want.rails]
    errors = [f"{rail.get('device', '')}: {rail['error']}" for rail in _rails(pod) if rail.get("error")]
    return Pair(
        source=pod.node,
        target=target,
        good=sum(speed >= want.floor and speed > 0 for speed in speeds),
        worst=speeds[-1] if len(speeds) == want.rails else 0.0,
        error=errors[0][:200] if errors else "",
    )


def _node(
    name: str, pod: CheckPod | None, seen: FunctionalObservation, want: FunctionalExpectation, pairs: list[Pair]
) -> NodeVerdict:
    goal = f"{want.rails} rails at {want.floor:g} Gbit/s or more"
    if pod is None or not pod.report:
        return gate_checks.silent(pod, seen.pods, goal).of_node(name)
    mine = [pair for pair in pairs if name in (pair.source, pair.target)]
    bad = [pair for pair in mine if pair.good < want.rails]
    finding = _attachment(pod, want) or _ports(pod, want)
    if finding is None and not mine:
        step = "see why its neighbours' pods did not run"
        finding = unknown(FailureClass.RUNTIME, "no pair of this node was measured", goal, step)
    # one good pair proves the node; the bad pair is the other node's or the path's
    elif finding is None and len(bad) == len(mine):
        finding = _slow(name, bad, goal)
    return node_verdict(name, finding, f"{want.rails} rails, {max((pair.worst for pair in mine), default=0):g} Gbit/s")


def _slow(name: str, bad: list[Pair], goal: str) -> Finding:
    best = max(bad, key=lambda pair: pair.worst)
    peers = ", ".join(dict.fromkeys(pair.target if pair.source == name else pair.source for pair in bad))
    result = f"{best.good} rails reach the floor, the slowest {best.worst:g} Gbit/s, with {peers} {best.error}".rstrip()
    step = "ibstat and cable of the slow rail; PCIe width (lspci -vv); if a neighbour fails too, test it with another node"
    return fail(FailureClass.PERFORMANCE if best.worst > 0 else FailureClass.RUNTIME, result, goal, step)


def _ports(pod: CheckPod, want: FunctionalExpectation) -> Finding | None:
    """Return a failure if fewer RDMA ports of a pod's node are active than rails are wanted.

    A shared RDMA resource advertises the same number with one NIC as with eight, so the ports are counted.
    """
    rails = _rails(pod)
    down = [f"{rail.get('device')} {rail.get('state')}" for rail in rails if rail.get("state") != "ACTIVE"]
    active = len(rails) - len(down)
    if active >= want.rails:
        return None
    ports = f"{active} active RDMA ports of {len(rails)} seen; {', '.join(down[:4])} {pod.report.get('error', '')}".rstrip("; ")
    step = "ibstat on the node: cable, switch port, subnet manager"
    return fail(FailureClass.HARDWARE, ports, f"{want.rails} active ports", step)


def _attachment(pod: CheckPod, want: FunctionalExpectation) -> Finding | None:
    """Return a failure unless Multus' network status lists each wanted network with an interface and an address."""
    text = pod.annotations.get(NETWORK_STATUS, "")
    try:
        entries = msgspec.json.decode(text.encode(), type=tuple[Attached, ...]) if text else ()
    except msgspec.MsgspecError:
        entries = ()
    for wanted in want.networks:
        attached = next((entry for entry in entries if entry.name in (wanted, wanted.rpartition("/")[2])), None)
        if attached is None or not attached.interface or not attached.ips:
            state = "not in network-status"
            if attached is not None:
                state = f"interface {attached.interface or 'none'}, ips {', '.join(attached.ips) or 'none'}"
            step = "log of Multus and of nv-ipam-node on this node"
            return fail(FailureClass.RUNTIME, f"network {wanted}: {state}", "an interface with an address", step)
    return None
