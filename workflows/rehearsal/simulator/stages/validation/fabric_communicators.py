"""Stage validation: collectives of NCCL over simulated machines: their bandwidth by the links that they use, and their network."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from workflows.rehearsal.simulator.stages.validation import fabric_links
from workflows.rehearsal.simulator.stages.validation.validation_nccl_output import (
    SHARE,
    SLOW_LARGE,
    SOCKET,
    Communicator,
    fabric_bandwidth,
    node_bandwidth,
)
from workflows.rehearsal.simulator.world import World

CONGESTING = 3
"""Machines from which on a collective congests a badly routed fabric (fault `fabric_congested`); two of them have routes enough."""

WITHOUT_GDR = 0.92
"""Share of the fabric's bandwidth without GPUDirect RDMA: above the example spec's floor, so only NCCL's log shows it."""

GATHERED, EXCHANGED = 0.94, 0.9
"""Share of a ring's bandwidth that all_gather reaches, and of the ports' rate that alltoall does; published ones are 0.5 to 1
(`catalog/floors.yaml`, relative).
"""


def adapters(world: World, nodes: Sequence[str]) -> list[list[str]]:
    """Return the ports that NCCL uses on each node, with their link layer, such as `mlx5_0:1/IB`."""
    hardware, missing = world.hardware(nodes[0]), bool(world.fault("nccl_adapter_missing"))
    usual = [f"mlx5_{number}:1/{hardware.nic_link}" for number in range(hardware.nics - missing)]
    return [_with_storage_nic(usual) if world.fault("nccl_storage_nic_for_a_rail", node) else usual for node in nodes]


def _with_storage_nic(ports: list[str]) -> list[str]:
    """Return the ports of a node on which that of rail 3 is down: NCCL takes the storage NIC, which is Ethernet, in its place."""
    return [*(port for port in ports if not port.startswith("mlx5_3:")), f"mlx5_{len(ports)}:1/RoCE"]


def simulated_fabric(world: World, hosts: Sequence[str], nodes: Sequence[str], gpus: int) -> tuple[Communicator, str, bool]:
    """Return the simulated all-reduce (its workers and GB/s), the network used (`IB` or `Socket`), and True if by GPUDirect."""
    hardware = world.hardware(nodes[0])
    busbw = min(fabric_bandwidth(hardware), node_bandwidth(hardware))
    product, gdr, network = hardware.product, True, "IB"
    if world.fault("nccl_one_host"):
        return (Communicator(hosts=tuple(hosts[:1]), gpus=gpus, busbw=node_bandwidth(hardware), product=product), network, gdr)
    if world.fault("nccl_socket_fallback"):
        busbw, network, gdr = SOCKET, "Socket", False
    if world.fault("nccl_gdr_disabled"):
        busbw, gdr = busbw * WITHOUT_GDR, False
    busbw = min(fabric_bandwidth(hardware) * fabric_links.ring_share(world, nodes, hardware.nics), busbw)
    slow = busbw * SLOW_LARGE if world.fault("fabric_congested") and len(nodes) >= CONGESTING else 0.0
    wrong = 96 if world.fault("nccl_wrong_data") else 0
    return Communicator(hosts=tuple(hosts), gpus=gpus, busbw=busbw, product=product, slow_at=slow, wrong=wrong), network, gdr


def simulated_collective(
    world: World, operation: str, hosts: Sequence[str], nodes: Sequence[str], gpus: int
) -> tuple[Communicator, str, bool]:
    """Return a simulated all_gather or alltoall, the network that it uses, and True if by GPUDirect."""
    shape, network, gdr = simulated_fabric(world, hosts, nodes, gpus)
    hardware = world.hardware(nodes[0])
    busbw = GATHERED * shape.busbw
    if operation == "alltoall" and network == "IB":
        # bus bandwidth counts the part for ranks of the same machine too, which no port carries
        outside = (shape.ranks - 1) / max(shape.ranks - gpus, 1)
        port = SHARE * hardware.nic_gbit / 8 * hardware.nics / gpus
        busbw = EXCHANGED * port * outside * fabric_links.mesh_share(world, nodes, hardware.nics)
    wrong = 96 if operation == "all_gather" and world.fault("all_gather_wrong_data") else shape.wrong
    return msgspec.structs.replace(shape, busbw=busbw, wrong=wrong, operation=operation), network, gdr
