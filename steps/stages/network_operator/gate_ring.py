"""Judges bandwidth in a ring: each pod measures to the next one, so each node is in two pairs, and a bad one spoils both."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.checks import CheckPod
from steps.contract.verdict import FailureClass, NodeVerdict, Status
from steps.stages.network_operator.contract import FunctionalExpectation, FunctionalObservation
from steps.stages.shared import gate_checks

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"


class Pair(Struct, frozen=True, kw_only=True):
    """A measured pair: `good` counts rails at or above the floor, `worst` is the slowest of the best `rails`, in Gbit/s."""

    source: str
    target: str
    good: int
    worst: float
    error: str = ""


class Attached(Struct, frozen=True):
    """An entry of Multus' network status."""

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
        return gate_checks.silent(name, pod, seen.pods, goal)
    local = _attachment(name, pod, want) or _ports(name, pod, want)
    if local is not None:
        return local
    mine = [pair for pair in pairs if name in (pair.source, pair.target)]
    bad = [pair for pair in mine if pair.good < want.rails]
    if not mine:
        return NodeVerdict(
            node=name,
            status=Status.INCONCLUSIVE,
            seen="no pair of this node was measured",
            expected=goal,
            next_step="see why its neighbours' pods did not run",
            failure_class=FailureClass.RUNTIME,
        )
    # one good pair proves the node; the bad pair is the other node's or the path's
    if len(bad) < len(mine):
        return NodeVerdict(node=name, status=Status.PASS, seen=f"{want.rails} rails, {max(pair.worst for pair in mine):g} Gbit/s")
    return _slow(name, bad, goal)


def _slow(name: str, bad: list[Pair], goal: str) -> NodeVerdict:
    best = max(bad, key=lambda pair: pair.worst)
    peers = ", ".join(dict.fromkeys(pair.target if pair.source == name else pair.source for pair in bad))
    result = f"{best.good} rails reach the floor, the slowest {best.worst:g} Gbit/s, with {peers} {best.error}".rstrip()
    return NodeVerdict(
        node=name,
        status=Status.FAIL,
        seen=result,
        expected=goal,
        next_step="ibstat and cable of the slow rail; PCIe width (lspci -vv); if a neighbour fails too, test it with another node",
        failure_class=FailureClass.PERFORMANCE if best.worst > 0 else FailureClass.RUNTIME,
    )


def _ports(name: str, pod: CheckPod, want: FunctionalExpectation) -> NodeVerdict | None:
    """Return a failure if too few of the node's own ports are active.

    A shared RDMA resource advertises the same number with one NIC as with eight, so the ports are counted.
    """
    rails = _rails(pod)
    active = [rail for rail in rails if rail.get("state") == "ACTIVE"]
    if len(active) >= want.rails:
        return None
    down = [f"{rail.get('device')} {rail.get('state')}" for rail in rails if rail.get("state") != "ACTIVE"]
    ports = f"{len(active)} active RDMA ports of {len(rails)} seen; {', '.join(down[:4])} {pod.report.get('error', '')}".rstrip(
        "; "
    )
    return NodeVerdict(
        node=name,
        status=Status.FAIL,
        seen=ports,
        expected=f"{want.rails} active ports",
        next_step="ibstat on the node: cable, switch port, subnet manager",
        failure_class=FailureClass.HARDWARE,
    )


def _attachment(name: str, pod: CheckPod, want: FunctionalExpectation) -> NodeVerdict | None:
    """Return a failure unless Multus' network status lists each wanted network with an interface and an address."""
    entries = _entries(pod.annotations.get(NETWORK_STATUS, ""))
    for wanted in want.networks:
        attached = next((entry for entry in entries if entry.name in (wanted, wanted.rpartition("/")[2])), None)
        if attached is None or not attached.interface or not attached.ips:
            state = (
                "not in network-status"
                if attached is None
                else f"interface {attached.interface or 'none'}, ips {', '.join(attached.ips) or 'none'}"
            )
            return NodeVerdict(
                node=name,
                status=Status.FAIL,
                seen=f"network {wanted}: {state}",
                expected="an interface with an address",
                next_step="log of Multus and of nv-ipam-node on this node",
                failure_class=FailureClass.RUNTIME,
            )
    return None


def _entries(text: str) -> tuple[Attached, ...]:
    try:
        return msgspec.json.decode(text.encode(), type=tuple[Attached, ...]) if text else ()
    except msgspec.MsgspecError:
        return ()
