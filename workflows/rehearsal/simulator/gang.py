"""Stage gang: the simulated schedulers Volcano, KAI and Kueue. Importing this module registers their charts and pods."""

from __future__ import annotations

from workflows.rehearsal.simulator.api_kinds import Obj
from workflows.rehearsal.simulator.gang_kai import Kai
from workflows.rehearsal.simulator.gang_kueue import Kueue
from workflows.rehearsal.simulator.gang_volcano import Volcano
from workflows.rehearsal.simulator.simulated_pods import LongRunning, check
from workflows.rehearsal.simulator.world import World


@check("gang-oversize")
@check("gang-fit")
def member(_world: World, _pod: Obj, _node: str) -> LongRunning:
    """Play a pod of a gang in the checks `gang-oversize` and `gang-fit`: it sleeps until it is deleted."""
    return LongRunning()


ROLES = (Volcano, Kai, Kueue)
