"""The simulated fabric: ports, routes and links between leaf switches, each with the share of its rate that is left.

A measurement follows from the links that its traffic crosses; no test is answered from the name of a fault.
"""

from __future__ import annotations

from collections.abc import Sequence

from workflows.rehearsal.simulator.world import World

SHARE = 0.968
"""Share of a port's line rate that ib_write_bw measures (387 of 400 Gbit/s)."""

DEGRADED_NODE, DEGRADED_RAIL, COLLISION, DEGRADED_PATH = 0.48, 0.6, 0.5, 0.62
"""Share that is left: of all ports of a machine whose adapters read in small parts, of a port on fewer lanes, of two flows on
one cable, and of a leaf pair that lost trunks.
"""
MESH_COLLISION, CONGESTED, COLLAPSING = 0.35, 0.45, 8
"""Share that is left of an exchange of all with all whose routes collide, and of a ring on a congested fabric of `COLLAPSING`
machines or more: fewer have routes enough.
"""
NARROW_ADAPTER = 0.25
"""Share of its rate that a port has left whose adapter has 4 of 16 PCIe lanes."""
RAIL = 3
"""The rail whose port is degraded on the victims of `fabric_rail_degraded`."""


def rate(world: World, source: str, target: str, rail: int) -> float:
    """Return the bandwidth in Gbit/s that ib_write_bw measures from one machine to another on one rail."""
    hardware = world.hardware(source)
    return hardware.nic_gbit * SHARE * share(world, source, target, rail)


def share(world: World, source: str, target: str, rail: int) -> float:
    """Return the share of its rate that a flow gets: the least of both ports, the route, and the link between the leaves."""
    ports = min(_port(world, source, rail), _port(world, target, rail))
    return min(ports, _route(world, source, target), _path(world, source, target))


def ring_share(world: World, nodes: Sequence[str], rails: int) -> float:
    """Return the share of its bandwidth that an all-reduce over a ring of machines keeps.

    Each rail carries its part of the data around the ring and is as fast as its slowest link; the rails add up.
    """
    if len(nodes) < 2 or not rails:
        return 1.0
    whole = sum(_ring_rails(world, nodes, rails)) / rails
    return whole * (CONGESTED if world.fault("fabric_collapses_at_scale") and len(nodes) >= COLLAPSING else 1.0)


def mesh_share(world: World, nodes: Sequence[str], rails: int) -> float:
    """Return the share of its bandwidth that an exchange of all machines with all others keeps.

    Each GPU sends through its own rail, so the slowest rail holds up all; flows that meet on one link share it.
    """
    if len(nodes) < 2 or not rails:
        return 1.0
    collide = world.fault("alltoall_routes_collide") and len(nodes) > 2
    return min(_ring_rails(world, nodes, rails)) * (MESH_COLLISION if collide else 1.0)


def _ring_rails(world: World, nodes: Sequence[str], rails: int) -> list[float]:
    """Return the share of each rail that its slowest link around a ring of machines leaves."""
    links = [*zip(nodes, (*nodes[1:], nodes[0]), strict=True)]
    return [min(share(world, source, target, rail) for source, target in links) for rail in range(rails)]


def slowest_port(world: World, node: str, rails: int) -> float:
    """Return the share of its rate that the slowest port of a machine has."""
    return min((_port(world, node, rail) for rail in range(rails)), default=1.0)


def _port(world: World, node: str, rail: int) -> float:
    whole = DEGRADED_NODE if world.fault("fabric_node_degraded", node) else 1.0
    narrow = NARROW_ADAPTER if rail == RAIL and world.fault("adapter_pcie_narrow", node) else 1.0
    return min(whole, narrow, DEGRADED_RAIL if rail == RAIL and world.fault("fabric_rail_degraded", node) else 1.0)


def _route(world: World, source: str, target: str) -> float:
    fault = world.fault("fabric_pair_collision")
    return COLLISION if fault and {source, target} == set(fault.nodes[:2]) else 1.0


def _path(world: World, source: str, target: str) -> float:
    if not world.fault("fabric_path_degraded"):
        return 1.0
    leaves = [*dict.fromkeys(world.host(node).variables.get("leaf", "") for node in world.fleet.pick("gpus"))]
    ends = {world.host(node).variables.get("leaf", "") for node in (source, target)}
    return DEGRADED_PATH if ends == {leaves[0], leaves[-1]} else 1.0
