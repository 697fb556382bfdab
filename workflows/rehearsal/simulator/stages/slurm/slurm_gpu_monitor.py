"""Stage slurm: GCM, a monitor of GPUs that sites run beside SUNK, as far as it writes conditions of nodes.

It is a chart of its own, which no stage installs: it is there under its fault alone.
"""

from __future__ import annotations

from workflows.rehearsal.simulator.api.api_kinds import NODES
from workflows.rehearsal.simulator.world import World

CHECKS = ("XidErrors", "SmiEcc", "SmiDisconnected", "ProcZombie", "DcgmiNvlinkStatus", "DcgmiDiag")
"""GCM's checks; each writes a condition `Gcm…Problem`, which is True for a problem."""
XID = "Xid 79: GPU has fallen off the bus"


def write_monitor_conditions(world: World) -> None:
    """Write GCM's conditions of all machines with GPUs; the victims of fault `slurm_gcm_xid` have seen an Xid."""
    if not world.fault("slurm_gcm_xid"):
        return
    for host in world.fleet:
        node = world.find(NODES, host.name)
        if node is None or not host.gpus:
            continue
        hit = world.fault("slurm_gcm_xid", host.name)
        rows = [(f"Gcm{check}Problem", "True" if hit and check == "XidErrors" else "False") for check in CHECKS]
        changes = [(kind, status, "", XID if status == "True" else "") for kind, status in rows]
        world.patch(NODES, node, {"status": {"conditions": world.conditions(node, *changes)}}, status=True)
